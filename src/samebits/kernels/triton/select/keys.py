"""Float32 values as integers in their order, and rows of them where equal values rank by index."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import bits, exp, from_bits
from samebits.kernels.triton.lib.settling import settle

LOWEST = tl.constexpr(-(2**63))  # below every place
MASS_ONE = tl.constexpr(2.0**28)
TWO_23 = tl.constexpr(2.0**23)


@triton.jit
def key_of(x):
    """int32 in the order of float32 x; -0 and +0 have one key."""
    pattern = tl.where(x == 0.0, 0, bits(x))
    return pattern ^ ((pattern >> 31) & 0x7FFFFFFF)


@triton.jit
def value_of(key):
    """The float32 of a key."""
    return from_bits(key ^ ((key >> 31) & 0x7FFFFFFF))


@triton.jit
def place_of(x, at, length, BITS: tl.constexpr):
    """int64, no two equal: larger values first, then lower indices. LOWEST outside the row. BITS hold an index."""
    place = (key_of(x).to(tl.int64) << BITS) | ((1 << BITS) - 1 - at).to(tl.int64)
    return tl.where(at < length, place, LOWEST)


@triton.jit
def index_of(place, BITS: tl.constexpr):
    return ((1 << BITS) - 1 - (place & ((1 << BITS) - 1))).to(tl.int32)


@triton.jit
def value_at(place, BITS: tl.constexpr):
    """The value of a place; a zero comes back as +0."""
    return value_of((place >> BITS).to(tl.int32))


@triton.jit
def mass_of(x, top):
    """int32 rint(exp(x - top) * 2^28), for the integer mass of top-p; seven of them fit into an int32."""
    w = exp(x - top) * MASS_ONE
    return tl.where(w < TWO_23, (w + TWO_23) - TWO_23, w).to(tl.int32)


@triton.jit
def load_row(x_ptr, at, length, factor):
    """x * factor as float32, settled, -Inf outside the row."""
    return settle(tl.load(x_ptr + at, mask=at < length, other=float("-inf")).to(tl.float32) * factor)
