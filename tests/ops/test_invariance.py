"""Equality of bytes: a row's result does not depend on what else is in the batch, nor on how a cache is laid out.

Rows first, for every op; the ops on paged caches are in test_invariance_paged.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from op_helpers import QUICK, as_bytes, copied, copy_of, results_of, run
from op_helpers import inputs_of as case_inputs

from samebits.core.format import FORMATS, BlockFormat, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import match_shape
from samebits.ops import OPS, bind, call, make_inputs
from samebits.ops.record import WEIGHTS, Op

BATCHES = (2, 3, 4, 8, 16, 33)
# Rows that are computed alone, by their distance from the end of a batch: a batch has them at its ends and around its
# powers of two, at other positions than the batch before.
ALONE = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32)
PAGED = (
    "paged_attention",
    "append_paged_kv_cache",
    "rope_and_append",
    "rope_both_and_append",
    "copy_kv_pages",
    "copy_slots",
)


def has_rows(op: Op, name: str, value: Any) -> bool:
    """Whether the first axis of an input counts rows of the batch."""
    for dims in next(t.dims_choices for t in op.inputs if t.name == name):
        env: dict[str, Any] = {}
        if match_shape(dims, value.shape, env):
            first = dims.split()[0]
            return first in op.invariant_axes and env[first] != ()
    return False


def enlarged(op: Op, case: Any, total: int) -> dict[str, Any]:
    """Inputs of a case with `total` rows: the case's own maker, asked for more."""
    dims = {n: total if n in ("T", "B") and n in op.invariant_axes else d for n, d in case.dims.items()}
    if "..." in dims and "..." in op.invariant_axes:
        dims["..."] = (total, *dims["..."][1:])
    return make_inputs(op, replace(case, dims=dims))


IN_SLOTS = ("causal_conv", "gated_delta_rule", "ssm_scan")  # see test_recurrent.py
BY_PAIRS = ("expert_layout", "expert_gemm", "expert_gemm_q8", "expert_gate_q8", "combine")  # see test_experts.py
ROW_CASES = [
    p
    for p in QUICK
    if p.values[0].name not in (*PAGED, *IN_SLOTS, *BY_PAIRS, "grouped_gemm") and "vocabulary" not in p.id
]
ROW_CASES = [p for p in ROW_CASES if not any(w in p.id for w in ("llama-", "gemma-2", "qwen3", "prefill-", "decode-"))]


@pytest.mark.parametrize(("op", "case"), ROW_CASES)
def test_a_row_alone_equals_the_row_in_any_batch(op, case):
    largest = enlarged(op, case, max(BATCHES))
    tensors = {t.name for t in op.inputs}
    batched = [n for n in largest if n in tensors and has_rows(op, n, largest[n])]
    assert batched

    def results(rows: list[int]) -> list[Any]:
        part = {n: copy_of(v[rows]) if n in batched else v for n, v in largest.items()}
        return list(results_of(op, copied(part)))

    shuffled = Stream(op.name + case.id).permutation(max(BATCHES)).tolist()
    alone = {r: [as_bytes(x) for x in results([r])] for r in (shuffled[-1 - back] for back in ALONE)}
    for size in BATCHES:
        rows = shuffled[-size:]
        together = results(rows)
        for at, r in enumerate(rows):
            if r in alone:
                assert [as_bytes(x[at : at + 1]) for x in together] == alone[r], f"row {r} of a batch of {size}"


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_grouped_rows_equal_the_plain_product_of_their_group(fmt):
    inputs = case_inputs("grouped_gemm", f"small-{fmt}")
    whole = run("grouped_gemm", **inputs)
    for s, (start, stop) in enumerate(zip(inputs["seg_indptr"], inputs["seg_indptr"][1:], strict=False)):
        for t in range(start, stop):
            assert as_bytes(whole[t : t + 1]) == as_bytes(run("gemm", inputs["x"][t : t + 1], inputs["weight"][s]))


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_a_head_is_the_plain_product_with_its_matrix(fmt):
    inputs = case_inputs("head_gemm", f"small-{fmt}")
    whole = run("head_gemm", **inputs)
    for h in range(whole.shape[1]):
        assert as_bytes(whole[:, h]) == as_bytes(run("gemm", inputs["x"][:, h], inputs["weight"][h]))


@pytest.mark.parametrize("axis", ["H"])
@pytest.mark.parametrize("op_name", ["rope", "merge_state"])
def test_heads_do_not_see_each_other(op_name, axis):
    inputs = case_inputs(op_name, "small-f32")
    heads = [n for n, v in inputs.items() if isinstance(v, np.ndarray) and n not in ("pos_ids", "table")]
    whole = results_of(OPS[op_name], inputs)
    for h in range(inputs[heads[0]].shape[1]):
        one = results_of(OPS[op_name], {n: v[:, h : h + 1] if n in heads else v for n, v in inputs.items()})
        assert [as_bytes(x) for x in one] == [as_bytes(x[:, h : h + 1]) for x in whole]


@pytest.mark.parametrize("strides", ["reversed", "every second", "columns of a wider matrix"])
@pytest.mark.parametrize("op_name", ["rms_norm", "layer_norm", "softmax", "silu_and_mul", "quantize_q8", "gemm"])
def test_strides_of_the_input_do_not_matter(op_name, strides):
    inputs = case_inputs(op_name, "small-f32")
    x = inputs["x"]
    view = {
        "reversed": lambda: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "every second": lambda: np.repeat(x, 2, axis=0)[::2],
        "columns of a wider matrix": lambda: np.concatenate([x, x], axis=1)[:, : x.shape[1]],
    }[strides]()
    assert not view.flags.c_contiguous
    want = [as_bytes(r) for r in results_of(OPS[op_name], inputs)]
    assert [as_bytes(r) for r in results_of(OPS[op_name], {**inputs, "x": view})] == want


class CallingBuilder:
    """A graph builder that computes at once: one method per op."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: call(OPS[name], *args, **kwargs)


# Bits are promised for float32 activations: 16-bit ones are rounded once more between the unfused ops.
DECOMPOSED = [p for p in QUICK if p.values[0].decompose is not None and p.values[1].formats.get("x", "f32") == "f32"]
DECOMPOSED = [p for p in DECOMPOSED if "/decode-8-experts" not in p.id]  # megabytes of weights


def decomposed(op: Op, inputs: dict[str, Any]) -> list[bytes]:
    bound = bind(op, **inputs)
    parts = op.decompose(CallingBuilder(), **bound.tensors, **bound.attrs)
    return [as_bytes(p) for p in (parts if isinstance(parts, tuple) else (parts,))]


@pytest.mark.parametrize(("op", "case"), DECOMPOSED)
def test_fused_equals_its_decomposition(op, case):
    inputs = make_inputs(op, case)
    assert decomposed(op, copied(inputs)) == [as_bytes(r) for r in results_of(op, inputs)]


@pytest.mark.parametrize("fmt", [f for f in WEIGHTS if isinstance(FORMATS[f], BlockFormat)])
def test_rows_of_a_weight_do_not_see_each_other(fmt):
    inputs = case_inputs("gemm", f"small-{fmt}")
    whole = run("gemm", **inputs)
    weight: Packed = inputs["weight"]
    for n in (0, 7, 39):
        assert as_bytes(run("gemm", inputs["x"], weight[n : n + 1])) == as_bytes(whole[:, n : n + 1])
