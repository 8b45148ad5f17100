"""Products over segments on the native backend: unequal ones on any number of threads, and layouts it must refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.one_op import OneOp, weight_kinds
from samebits.core.errors import BadInput, Unavailable
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.ops.expert_cases import expert_case, laid_out
from samebits.verify.harness import same_bytes

try:
    ISAS = native().isas()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

RANKS, EXPERTS = 2, 6
ALL_PARTS = (150, 24, 0, 17, 1, 0)  # tokens by their first choice: two parts, a tile of AMX or none, a lone token
FEW = (0, 3, 0, 1, 2, 1)  # few enough that threads make tokens ready for themselves
PRODUCTS = {
    "expert_gemm": ("f32", "bf16", "q8_0"),
    "expert_gemm_q8": ("q4_0", "q6_k"),
    "expert_gate_q8": ("q4_0", "q5_1"),
}


def inputs_of(op_name: str, fmt: str, tokens: tuple[int, ...], **kw: Any) -> dict[str, Any]:
    """Tokens by their first choice; the second is the next expert. 192 rows: enough for several units."""
    case = expert_case("threads", sum(tokens), RANKS, EXPERTS, 192, 64, fmt, **kw)
    case.dims["K"] = 256 if fmt == "q6_k" else 64
    case.dims["NB"] = case.dims["K"] // 32
    first = np.repeat(np.arange(EXPERTS), tokens)
    first = first[np.argsort(Stream("order").uniform(0, 1, first.shape))]
    ids = np.stack([first, (first + 1) % EXPERTS], axis=1).astype(np.int32)
    return {**make_inputs(OPS[op_name], case), **laid_out(ids, EXPERTS)}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("op_name", "fmt"), [(op, fmt) for op, formats in PRODUCTS.items() for fmt in formats])
def test_unequal_segments_have_the_reference_bits_on_any_number_of_threads(isa: str, op_name: str, fmt: str) -> None:
    backend = CpuBackend(isa)
    for tokens, kw in ((ALL_PARTS, {"given": ("bias",)}), (FEW, {"rows": "pair"})):
        bound = bind(OPS[op_name], **inputs_of(op_name, fmt, tokens, **kw))
        op = OneOp(backend, bound.op, bound.specs, bound.attrs, Tier.PORTABLE, weight_kinds(bound.op))
        op.put(bound.tensors)
        want = evaluate(bound)
        for threads in (1, 2, 3):
            backend.set_threads(threads)
            op.run()
            assert all(same_bytes(op.result(i), result) for i, result in enumerate(want)), f"{threads} threads"


# Segments start at 0, 1, 4, 7, ...: what may not stand where the third starts, nor third among 14 pairs.
BAD_LAYOUTS = {"seg_indptr": (0, -1, 8, 2**30), "pairs": (-1, 14, 2**31 - 1)}


@pytest.mark.parametrize("op_name", PRODUCTS)
@pytest.mark.parametrize(("argument", "value"), [(a, v) for a, values in BAD_LAYOUTS.items() for v in values])
def test_a_layout_that_nobody_checked_is_refused_by_the_kernel(op_name: str, argument: str, value: int) -> None:
    bound = bind(OPS[op_name], **inputs_of(op_name, "q8_0", FEW))
    op = OneOp(backend := CpuBackend(), bound.op, bound.specs, bound.attrs, Tier.PORTABLE)
    buffers = op.put(bound.tensors)
    spoiled = np.array(bound.tensors[argument])
    spoiled[2] = value
    backend.copy_in(buffers[argument], spoiled)
    with pytest.raises(BadInput, match=rf"{op_name}: {argument} (is|has) "):
        op.run()


def test_experts_that_do_not_exist_are_refused_by_the_kernel() -> None:
    bound = bind(OPS["expert_layout"], np.array([[0, 1], [2, 1]], np.int32), num_experts=3)
    op = OneOp(backend := CpuBackend(), bound.op, bound.specs, bound.attrs, Tier.PORTABLE)
    buffers = op.put(bound.tensors)
    for bad in (-1, 3):
        backend.copy_in(buffers["expert_ids"], np.array([[0, 1], [bad, 1]], np.int32))
        with pytest.raises(BadInput, match="expert_layout: expert_ids is no such expert"):
            op.run()
