"""Caches: one rounding to what they hold, after a rotation where there is one."""

from __future__ import annotations

import numpy as np

from samebits.core.format import HostTensor, Packed, format_of
from samebits.verify.bounds.expected import LEAST_STEP, ROUNDING, SAFETY, Expected
from samebits.verify.bounds.near import UNIT
from samebits.verify.tolerance import as_numbers

ROTATED = 8 * UNIT  # of a pair's length: two products and a sum for either element


def stored(want: HostTensor) -> Expected:
    """Values that were rounded once: a block's code may fall on the other side of a tie, and its scale too."""
    values = as_numbers(want)
    sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
    if isinstance(want, Packed):
        codes = want.codes()
        step = np.repeat(np.abs(codes.d).astype(np.float64), codes.q.shape[-1], axis=-1)
        return Expected(values, 1.001 * step + 2 * ROUNDING["f16"] * sizes)
    return Expected(values, np.zeros(values.shape))


def rotated(want: HostTensor, num_pairs: int, interleave: bool) -> Expected:
    """Values that were rotated first. A rotation keeps the length of a pair, of which its error is a part."""
    once = stored(want)
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
