"""An interval of a row that holds the last place kept, with few enough places in it for one block.

What is kept is the start of the ranking up to a place; the place is the lowest one above which the weight is still
less than `need`. A weight is 1 (top-k) or the integer mass of a probability (top-p), so sums have no order and any
pivots lead to the same place.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.select.keys import (
    key_of,
    load_row,
    mass_of,
    place_of,
    value_at,
)

CAPACITY = 4096  # places that the second half holds in registers
LIST = tl.constexpr(CAPACITY)
GUESSES = tl.constexpr(6)  # passes that quarter the values; after them places are quartered


@triton.jit
def tile(start, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Indices [ROWS, COLS] from `start` on."""
    return start + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]


@triton.jit
def extent(x_ptr, factor, LENGTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """(the largest key, the smallest finite value, whether there is a NaN) of a row."""
    highest = tl.full([COLS], -(2**31), tl.int32)
    lowest = tl.full([COLS], float("inf"), tl.float32)
    nan = tl.zeros([COLS], tl.int32)
    for start in range(0, LENGTH, ROWS * COLS):
        x = load_row(x_ptr, tile(start, ROWS, COLS), LENGTH, factor)
        highest = tl.maximum(highest, tl.max(key_of(x), axis=0))
        lowest = tl.minimum(lowest, tl.min(tl.where(x == float("-inf"), float("inf"), x), axis=0))
        nan = tl.maximum(nan, tl.max((x != x).to(tl.int32), axis=0))
    return tl.max(highest, axis=0), tl.min(lowest, axis=0), tl.max(nan, axis=0) != 0


@triton.jit
def mass_from(
    x_ptr, factor, top, first, LENGTH: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """(mass, count) of the places from `first` on."""
    mass = tl.zeros([COLS], tl.int64)
    count = tl.zeros([COLS], tl.int32)
    for start in range(0, LENGTH, ROWS * COLS):
        at = tile(start, ROWS, COLS)
        x = load_row(x_ptr, at, LENGTH, factor)
        inside = place_of(x, at, LENGTH, BITS) >= first
        mass += tl.sum(tl.where(inside, mass_of(x, top), 0), axis=0).to(tl.int64)
        count += tl.sum(inside.to(tl.int32), axis=0)
    return tl.sum(mass, axis=0), tl.sum(count, axis=0)


@triton.jit
def _weigh(
    x_ptr, factor, top, p1, p2, p3,
    MASS: tl.constexpr, EXACT: tl.constexpr, LENGTH: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):  # fmt: skip
    """Weights and counts of what lies at or above each of three places (EXACT) or values: (w1, w2, w3, n1, n2, n3)."""
    tl.static_assert(ROWS < 8)  # masses of a column of the tile are added in int32
    m1 = tl.zeros([COLS], tl.int64)
    m2 = tl.zeros([COLS], tl.int64)
    m3 = tl.zeros([COLS], tl.int64)
    n1 = tl.zeros([COLS], tl.int32)
    n2 = tl.zeros([COLS], tl.int32)
    n3 = tl.zeros([COLS], tl.int32)
    for start in range(0, LENGTH, ROWS * COLS):
        at = tile(start, ROWS, COLS)
        x = load_row(x_ptr, at, LENGTH, factor)
        if EXACT:
            place = place_of(x, at, LENGTH, BITS)
            is1, is2, is3 = place >= p1, place >= p2, place >= p3
        else:
            is1, is2, is3 = x >= p1, x >= p2, x >= p3
        n1 += tl.sum(is1.to(tl.int32), axis=0)
        n2 += tl.sum(is2.to(tl.int32), axis=0)
        n3 += tl.sum(is3.to(tl.int32), axis=0)
        if MASS:
            mass = mass_of(x, top)
            m1 += tl.sum(tl.where(is1, mass, 0), axis=0).to(tl.int64)
            m2 += tl.sum(tl.where(is2, mass, 0), axis=0).to(tl.int64)
            m3 += tl.sum(tl.where(is3, mass, 0), axis=0).to(tl.int64)
    c1, c2, c3 = tl.sum(n1, axis=0), tl.sum(n2, axis=0), tl.sum(n3, axis=0)
    if MASS:
        return tl.sum(m1, axis=0), tl.sum(m2, axis=0), tl.sum(m3, axis=0), c1, c2, c3
    return c1.to(tl.int64), c2.to(tl.int64), c3.to(tl.int64), c1, c2, c3


@triton.jit
def _guess(a, b, share):
    """A settled value between two; b where there is none. Any will do, if all comparisons see the same number."""
    value = settle(a + (b - a) * share)
    return tl.where(value == value, value, b)


@triton.jit
def _cut(low, high, count, above, count_above, need, p, w, n):
    """The interval after weight w and count n at place p and above it are known; a p outside changes nothing."""
    rises = (w >= need) & (p > low)
    falls = (w < need) & (p <= high)
    low, count = tl.where(rises, p, low), tl.where(rises, n, count)
    above, count_above = tl.where(falls, w, above), tl.where(falls, n, count_above)
    return low, tl.where(falls, p - 1, high), count, above, count_above


@triton.jit
def narrow(
    x_ptr, factor, top, lowest, low, high, need, count, whole,
    MASS: tl.constexpr, LENGTH: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The interval cut down: (low, high, weight above high, places from low on, whether it ends between values).

    The place sought lies in low .. high, `count` places lie at low or above. With `whole` all of these are to fit into
    the list, which a need of at most LIST places lets them; else those in the interval.
    """
    above = need * 0
    count_above = count * 0
    step = 0
    while (count - tl.where(whole, 0, count_above) > LIST) & (low < high):
        if step < GUESSES:
            a, b = value_at(low, BITS), value_at(high, BITS)
            a = tl.where(a > lowest, a, lowest)
            v1, v2, v3 = _guess(a, b, 0.25), _guess(a, b, 0.5), _guess(a, b, 0.75)
            w1, w2, w3, n1, n2, n3 = _weigh(x_ptr, factor, top, v1, v2, v3, MASS, False, LENGTH, BITS, ROWS, COLS)
            p1 = key_of(v1).to(tl.int64) << BITS
            p2 = key_of(v2).to(tl.int64) << BITS
            p3 = key_of(v3).to(tl.int64) << BITS
        else:
            width = high - low
            p1 = low + tl.maximum(width >> 2, 1)
            p2 = low + tl.maximum(width >> 1, 1)
            p3 = low + tl.maximum(width - (width >> 2), 1)
            w1, w2, w3, n1, n2, n3 = _weigh(x_ptr, factor, top, p1, p2, p3, MASS, True, LENGTH, BITS, ROWS, COLS)
        low, high, count, above, count_above = _cut(low, high, count, above, count_above, need, p1, w1, n1)
        low, high, count, above, count_above = _cut(low, high, count, above, count_above, need, p2, w2, n2)
        low, high, count, above, count_above = _cut(low, high, count, above, count_above, need, p3, w3, n3)
        step += 1
    return low, high, above, count, step <= GUESSES
