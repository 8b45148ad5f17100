"""Kernels over sequences with slots: batches of every kind, padded steps, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from samebits.core.errors import BadInput
from samebits.core.tiers import Tier
from samebits.kernels.record import Kernel
from samebits.kernels.triton.lib.faults import raise_if_any
from samebits.kernels.triton.recurrent.launch import registers_serve
from samebits.kernels.triton.table import triton_kernels
from samebits.ops import OPS, make_inputs
from samebits.ops.record import Case
from samebits.ops.slot_cases import BATCHES

HOST = torch.device("cpu")
SIZES: dict[str, dict[str, int]] = {  # parts of a run of 8, of 32 elements and of a program's columns
    "gated_delta_rule": {"Hk": 1, "H": 2, "K": 36, "V": 9},
    "ssm_scan": {"G": 1, "H": 2, "S": 12, "P": 3},
    "causal_conv": {"C": 5, "taps": 4, "J": 3},
}
Arrays = dict[str, np.ndarray]


def case_of(op: str, batch: str, **attrs: Any) -> Case:
    given = {"ssm_scan": ("D",), "causal_conv": ("bias",)}.get(op, ())
    return Case(batch, SIZES[op], attrs, extra={"batch": batch}, given=given)


def arrays_of(op: str, case: Case) -> Arrays:
    return {name: x for name, x in make_inputs(OPS[op], case).items() if isinstance(x, np.ndarray)}


def kernel_of(op: str, tier: Tier) -> Kernel:
    return next(kernel for kernel in triton_kernels()[op] if kernel.tier is tier)


def run(op: str, inputs: Arrays, attrs: dict[str, Any]) -> list[np.ndarray]:
    given = {name: torch.from_numpy(x.copy()) for name, x in inputs.items()}
    with np.errstate(all="ignore"):
        results = kernel_of(op, Tier.PORTABLE).run(**given, **attrs)
    return [x.numpy() for x in results]


def reference(op: str, inputs: Arrays, attrs: dict[str, Any]) -> list[np.ndarray]:
    return list(OPS[op].reference(**{name: x.copy() for name, x in inputs.items()}, **attrs))


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Memory that nobody may read holds the same NaN before and after."""
    return one.tobytes() == other.tobytes()


CALLS = [
    ("gated_delta_rule", "mixed", {"scale": 0.3}),
    ("gated_delta_rule", "decode", {"scale": 0.3}),
    ("ssm_scan", "ends", {}),
    ("ssm_scan", "decode", {"dt_min": 0.1, "dt_max": 0.7}),
    ("causal_conv", "mixed", {"activation": "silu"}),
    ("causal_conv", "many", {}),
]


@pytest.mark.parametrize(("op", "batch", "attrs"), CALLS)
def test_batches_have_the_bits_of_the_reference(op: str, batch: str, attrs: dict[str, Any]) -> None:
    inputs = arrays_of(op, case_of(op, batch, **attrs))
    pairs = zip(run(op, inputs, attrs), reference(op, inputs, attrs), strict=True)
    assert [same_bits(got, want) for got, want in pairs] == [True] * len(OPS[op].results)


ALIGNED = [48, 80, 96, 112, 144, 160, 176, 192, 208, 224, 240]  # multiples of 16 that are no powers of two


@pytest.mark.parametrize("width", ALIGNED)
@pytest.mark.parametrize("op", ["gated_delta_rule", "ssm_scan"])
def test_aligned_heads_have_the_bits_of_the_reference(monkeypatch: pytest.MonkeyPatch, op: str, width: int) -> None:
    """A prompt from the middle of a chunk and a single token: both kernels' sums over K."""
    monkeypatch.setitem(BATCHES, "two", ((15, 2), (3, 1)))
    names = ("Hk", "H", "K", "V") if op == "gated_delta_rule" else ("G", "H", "S", "P")
    case = replace(case_of(op, "two"), dims=dict(zip(names, (1, 2, width, 3), strict=True)))
    inputs = arrays_of(op, case)
    pairs = zip(run(op, inputs, {}), reference(op, inputs, {}), strict=True)
    assert [same_bits(got, want) for got, want in pairs] == [True, True, True]


@pytest.mark.parametrize(("op", "names"), [("gated_delta_rule", "Hk H K V"), ("ssm_scan", "G H S P")])
def test_prompts_in_registers(monkeypatch: pytest.MonkeyPatch, op: str, names: str) -> None:
    """From the middle of a chunk, through a full one: whole heads go to registers/kernel.py, 16 columns a program."""
    monkeypatch.setitem(BATCHES, "middle", ((9, 8),))
    case = replace(case_of(op, "middle"), dims=dict(zip(names.split(), (1, 4, 64, 32), strict=True)))
    inputs = arrays_of(op, case)
    key, value = (torch.from_numpy(inputs[name]) for name in (("k", "v") if op == "gated_delta_rule" else ("B", "x")))
    assert registers_serve(key, value)
    pairs = zip(run(op, inputs, {}), reference(op, inputs, {}), strict=True)
    assert [same_bits(got, want) for got, want in pairs] == [True, True, True]


def overflow_last(op: str, inputs: Arrays) -> None:
    """Change the last token so that its u is infinite; all before it stays as it was."""
    if op == "gated_delta_rule":
        inputs["k"][-2:] = np.abs(inputs["k"][-2]) * 100
        inputs["v"][-2:], inputs["b"][-2:] = 1e38, 5
    else:
        inputs["x"][-1:], inputs["dt"][-1:] = 3e38, 50


@pytest.mark.parametrize("sizes", [(1, 2, 12, 3), (1, 4, 32, 32)], ids=["any", "registers"])
@pytest.mark.parametrize("op", ["gated_delta_rule", "ssm_scan"])
def test_a_token_that_overflows_changes_no_earlier_one(
    monkeypatch: pytest.MonkeyPatch, op: str, sizes: tuple[int, ...]
) -> None:
    monkeypatch.setitem(BATCHES, "short", ((9, 5),))
    names = ("Hk", "H", "K", "V") if op == "gated_delta_rule" else ("G", "H", "S", "P")
    case = replace(case_of(op, "short"), dims=dict(zip(names, sizes, strict=True)), given=())
    inputs = arrays_of(op, case)
    overflow_last(op, inputs)
    with np.errstate(all="ignore"):
        want, _, ring = reference(op, inputs, {})
    assert not np.isfinite(ring).all()
    assert same_bits(run(op, inputs, {})[0][:-2], want[:-2])


@pytest.mark.parametrize("sizes", [(1, 2, 12, 3), (1, 4, 32, 32)], ids=["any", "registers"])
def test_a_u_in_the_ring_that_overflowed_changes_no_later_one(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """Rows of earlier steps have u already: theirs have no weights, and 0 times Inf would be NaN."""
    monkeypatch.setitem(BATCHES, "resumed-once", ((6, 8),))
    case = replace(
        case_of("gated_delta_rule", "resumed-once"), dims=dict(zip(("Hk", "H", "K", "V"), sizes, strict=True))
    )
    inputs = arrays_of("gated_delta_rule", case)
    key_heads, heads, k, v = sizes
    inputs["ring"][inputs["slots"][0], 1, key_heads * k :][: heads * v] = np.inf
    with np.errstate(all="ignore"):
        wanted = reference("gated_delta_rule", inputs, {})
    assert np.isinf(wanted[2]).sum() > heads * v
    for got, want in zip(run("gated_delta_rule", inputs, {}), wanted, strict=True):
        assert np.array_equal(got, want, equal_nan=True)


def test_prompts_on_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt from its start, one from the middle of a chunk, and a token: near the reference, and what no row of
    theirs may touch as it was."""
    monkeypatch.setitem(BATCHES, "three", ((0, 21), (9, 8), (3, 1)))
    case = replace(case_of("gated_delta_rule", "three"), dims={"Hk": 2, "H": 4, "K": 32, "V": 32})
    inputs, attrs = arrays_of("gated_delta_rule", case), {"scale": 0.3, "v_heads": "tiled"}
    given = {name: torch.from_numpy(x.copy()) for name, x in inputs.items()}
    with np.errstate(all="ignore"):
        results = kernel_of("gated_delta_rule", Tier.FAST).run(**given, **attrs)
    for got, want in zip((x.numpy() for x in results), reference("gated_delta_rule", inputs, attrs), strict=True):
        assert np.array_equal(np.isnan(got), np.isnan(want))
        there = ~np.isnan(want)
        off = np.sqrt(np.square(got - want)[there].mean() / np.square(want)[there].mean())
        assert 0 < off < 4e-3


def test_value_heads_that_are_tiled() -> None:
    case = replace(case_of("gated_delta_rule", "page"), dims={"Hk": 2, "H": 4, "K": 1, "V": 1})
    inputs, attrs = arrays_of("gated_delta_rule", case), {"v_heads": "tiled"}
    pairs = zip(run("gated_delta_rule", inputs, attrs), reference("gated_delta_rule", inputs, attrs), strict=True)
    assert [same_bits(got, want) for got, want in pairs] == [True, True, True]


def padded(op: str, inputs: Arrays, num_tokens: int, num_seqs: int) -> Arrays:
    """The step as a device pads it: more rows of no position, more sequences of no tokens and no slot."""
    rows = len(inputs["positions"])
    per_token = [t.name for t in OPS[op].inputs if t.dims_choices[0].split()[0] == "T"]
    result = dict(inputs)
    for name in per_token:
        fill = -1 if name == "positions" else 0
        result[name] = np.concatenate(
            [inputs[name], np.full((num_tokens, *inputs[name].shape[1:]), fill, inputs[name].dtype)]
        )
    result["qo_indptr"] = np.concatenate([inputs["qo_indptr"], np.full(num_seqs, rows, np.int32)])
    result["slots"] = np.concatenate([inputs["slots"], np.full(num_seqs, -1, np.int32)])
    return result


@pytest.mark.parametrize("op", list(SIZES))
@pytest.mark.parametrize("batch", ["first", "page", "idle"])
def test_padding_computes_zeros_and_touches_no_slot(op: str, batch: str) -> None:
    inputs = arrays_of(op, case_of(op, batch))
    expected = reference(op, inputs, {})
    out, *memory = run(op, padded(op, inputs, 9, 2), {})
    assert same_bits(out[: len(expected[0])], expected[0])
    assert not out[len(expected[0]) :].any()
    assert [same_bits(got, want) for got, want in zip(memory, expected[1:], strict=True)] == [True] * len(memory)


BAD = [
    ("slots", 99, "slots is a slot that is not there"),
    ("slots", -1, "slots is a slot that is not there"),
    ("qo_indptr", 40, "qo_indptr has ranges that fall or leave the batch"),
    ("positions", -5, "positions is positions that do not follow each other"),
]


@pytest.mark.parametrize(("name", "value", "reason"), BAD)
@pytest.mark.parametrize("op", list(SIZES))
def test_sequences_that_are_none_are_refused_and_write_nothing(op: str, name: str, value: int, reason: str) -> None:
    inputs = arrays_of(op, case_of(op, "first"))
    inputs[name][-1] = value
    memory = run(op, inputs, {})[1:]
    with pytest.raises(BadInput, match=f"{op}: {reason}"):
        raise_if_any(HOST)
    assert all(same_bits(got, inputs[name]) for got, name in zip(memory, OPS[op].writes, strict=True))
