"""Bounds of cached values: one rounding to the cache's format, after a rotation if the op has one.

A code of a cache in blocks may fall on the other side of a tie. So it is the value before it was rounded that a stored
one must be near to: from the definition's code, each may be a whole step away.
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import HostTensor, Packed, copy_tensor, format_of
from samebits.ops import Bound, bind, evaluate
from samebits.verify.bounds.expected import LEAST_STEP, ROUNDING, SAFETY, Expected
from samebits.verify.bounds.near import UNIT
from samebits.verify.tolerance import as_numbers

TIE = 2.0**-8  # of a step: what float32 operations before a code is rounded may move it
ROTATED = 8 * UNIT  # of a pair's length: two products and a sum for either element


def before_rounding(bound: Bound) -> dict[str, np.ndarray]:
    """Return what the call writes into its caches in blocks, as float32 caches hold it; NaN where it writes nothing."""
    widths = {"k_cache": bound.tensors["key"].shape[-1]}
    if "value" in bound.tensors:
        widths["v_cache"] = bound.tensors["value"].shape[-1]
    empty = {
        name: np.full((*cache.shape[:-1], widths[name]), np.nan, np.float32)
        for name, cache in bound.tensors.items()
        if name in widths and isinstance(cache, Packed)
    }
    if empty:
        evaluate(bind(bound.op, **{**bound.tensors, **empty, **_copies_of_others(bound, empty)}, **bound.attrs))
    return empty


def _copies_of_others(bound: Bound, empty: dict[str, np.ndarray]) -> dict[str, HostTensor]:
    """The caches that the definition would write to, as copies."""
    return {name: copy_tensor(bound.tensors[name]) for name in bound.op.caches if name in bound.tensors.keys() - empty}


def stored(want: HostTensor, exact: np.ndarray | None = None) -> Expected:
    """Values that were rounded once. A cache in blocks needs `exact`, what `before_rounding` gives for it."""
    values = as_numbers(want)
    if not isinstance(want, Packed) or exact is None:
        return Expected(values, np.zeros(values.shape))
    padded = np.zeros(values.shape)
    padded[..., : exact.shape[-1]] = exact
    is_written = ~np.isnan(padded).any(axis=-1, keepdims=True)
    codes = want.codes()
    step = np.repeat(np.abs(codes.d).astype(np.float64), codes.q.shape[-1], axis=-1).reshape(values.shape)
    # half a step and a little; or as far as the definition is, whose codes end at one side before they do at the other
    error = np.maximum((0.5 + TIE) * step, (1 + TIE) * np.abs(values - padded)) + 2 * ROUNDING["f16"] * np.abs(padded)
    return Expected(np.where(is_written, padded, values), np.where(is_written, error, 0.0))


def rotated(want: HostTensor, num_pairs: int, interleave: bool, exact: np.ndarray | None = None) -> Expected:
    """Values that were rotated first. A rotation keeps the length of a pair, of which its error is a part."""
    once = stored(want, exact)
    if isinstance(want, Packed):
        return once
    values = np.where(np.isfinite(once.values), once.values, 0.0)
    first = slice(0, 2 * num_pairs, 2) if interleave else slice(num_pairs)
    second = slice(1, 2 * num_pairs, 2) if interleave else slice(num_pairs, 2 * num_pairs)
    error, length = np.zeros(values.shape), np.hypot(values[..., first], values[..., second])
    fmt = format_of(want).name
    for place in (first, second):
        lost = SAFETY * ROTATED * length
        error[..., place] = lost + 2 * ROUNDING[fmt] * (np.abs(values[..., place]) + lost) + LEAST_STEP[fmt]
    return Expected(once.values, error)
