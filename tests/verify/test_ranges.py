"""A quick run draws values outside float16's range, and negative tensor scales, for every input that may hold them.

Some case gives other bits where one input alone is narrowed to float16's range, or its tensor scale loses the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hunt import quick_tasks

from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.rounding import BF16
from samebits.ops import OPS, Op, bind, evaluate, make_inputs
from samebits.ops.space import Row
from samebits.verify.draw import QUICK_OPERATIONS
from samebits.verify.harness import same_bytes
from samebits.verify.model import is_drawn
from samebits.verify.select import find_case, prefix_of

Change = Callable[[HostTensor], HostTensor]
LARGEST, LEAST = 65504.0, 2.0**-25
FAR = ("beyond", "vast", "up-to-2^80", "extreme", "magnified", "edges")
NEAR_ZERO = ("faint", "bounds", "wide", "tiny", "reduced")


def saturated(x: HostTensor) -> HostTensor:
    """Return x with float16's largest number in the place of larger ones, NaN and infinities as they are."""
    if isinstance(x, Packed) or x.dtype not in (np.float32, BF16):
        return x
    wide = x.astype(np.float32)
    return np.where(np.isfinite(wide), np.clip(wide, -LARGEST, LARGEST), wide).astype(x.dtype)


def flushed(x: HostTensor) -> HostTensor:
    """Return x with 0 in the place of what float16 rounds to 0."""
    if isinstance(x, Packed) or x.dtype not in (np.float32, BF16):
        return x
    return np.where(np.abs(x.astype(np.float32)) < LEAST, 0, x).astype(x.dtype)


def unsigned(x: HostTensor) -> HostTensor:
    """Return x with the magnitude of its tensor scale."""
    return Packed(x.format, x.data, abs(x.scale)) if isinstance(x, Packed) else x


BOTH = ("saturated", "flushed")
SETTINGS = "the op's check bounds it"
BYTES = "the op moves bytes, of which ordinary values show every conversion"
SLOPES = "slopes of models are 2^-8 to 1"
SIGMOID, SOFTPLUS, POWER = (
    f"nothing but a {name} of it, which float16's range is enough for"
    for name in ("sigmoid", "softplus", "power of it minus the largest")
)
KEYS = "keys are normalised: with larger ones the state has no bound"
WRITERS = ("append_paged_kv_cache", "rope_and_append", "rope_both_and_append", "copy_kv_pages")
# (change, op, input) -> why float16's range is enough for it
ENOUGH = {
    **{(c, "sample", n): SETTINGS for c in BOTH for n in ("top_p", "min_p", "repetition", "presence", "frequency")},
    ("flushed", "sample", "temperature"): SETTINGS,
    **{(c, op, name): BYTES for c in BOTH for op in WRITERS for name in ("k_cache", "v_cache")},
    **{(c, "convert_kv_layout", "cache"): BYTES for c in BOTH},
    **{(c, "copy_slots", "state"): BYTES for c in BOTH},
    **{(c, op, "x"): BYTES for c in BOTH for op in ("split_heads", "merge_heads")},
    **{(c, "paged_attention", "alibi_slopes"): SLOPES for c in BOTH},
    **{
        (c, *pair): SIGMOID
        for c in BOTH
        for pair in (("combine", "shared_gate"), ("sigmoid_and_mul", "gate"), ("gated_delta_rule", "b"))
    },
    **{("flushed", "gated_delta_rule", name): SOFTPLUS for name in ("a", "dt_bias", "decay")},
    **{("flushed", "ssm_scan", name): SOFTPLUS for name in ("dt", "dt_bias", "decay")},
    **{("flushed", op, "sinks"): POWER for op in ("softmax", "paged_attention")},
    **{("flushed", "merge_state", name): POWER for name in ("s_a", "s_b")},
    ("flushed", "ssm_scan", "D"): "D * x is added to a sum that is larger",
    ("saturated", "gated_delta_rule", "k"): KEYS,
}


def inputs_of(op: Op, changes: str) -> Iterator[str]:
    """Yield the inputs of an op that a change must show."""
    for tensor in op.inputs:
        formats = {"f32"} if changes != "unsigned" else {"nvfp4"}
        if formats & set(tensor.formats) and (changes, op.name, tensor.name) not in ENOUGH:
            yield tensor.name


def cases_of(op: Op, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the inputs of the drawn cases whose name has one of these kinds, cheap ones first."""
    space = op.space
    assert space is not None

    def cost(row: Row) -> int:
        return space.cost(row)

    rows = [space.parse(t.case) for t in quick_tasks(op.name) if is_drawn(t.case) and not prefix_of(t.case)]
    for row in sorted((r for r in rows if set(kinds) & {str(v) for v in r.values()}), key=cost):
        if cost(row) <= QUICK_OPERATIONS:
            yield make_inputs(op, find_case(op, space.row_id(row)))


def results(op: Op, inputs: dict[str, Any]) -> tuple[HostTensor, ...]:
    copies = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in inputs.items()}
    return evaluate(bind(op, **copies))


def shows(op: Op, inputs: dict[str, Any], name: str, change: Change) -> bool:
    """Whether the definition gives other bits where one input is changed."""
    if inputs.get(name) is None:
        return False
    if change is not unsigned and same_bytes(inputs[name], change(inputs[name])):
        return False
    try:
        found = results(op, {**inputs, name: change(inputs[name])})
    except Exception:  # refused: a backend that narrows the input fails the case too
        return True
    return any(not same_bytes(a, b) for a, b in zip(found, results(op, inputs), strict=True))


CHANGES = {"saturated": (saturated, FAR), "flushed": (flushed, NEAR_ZERO), "unsigned": (unsigned, ("any-bytes",))}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [op.name for op in OPS if any(any(inputs_of(op, c)) for c in CHANGES)])
def test_a_quick_run_shows_inputs_within_half_their_range(name: str) -> None:
    op = OPS[name]
    for changes, (change, kinds) in CHANGES.items():
        hidden = set(inputs_of(op, changes))
        for inputs in cases_of(op, kinds):
            hidden -= {tensor for tensor in hidden if shows(op, inputs, tensor, change)}
            if not hidden:
                break
        assert not hidden, changes


def test_no_exception_is_stated_in_vain() -> None:
    known = {(c, op.name, tensor.name) for c in CHANGES for op in OPS for tensor in op.inputs}
    assert ENOUGH.keys() <= known
