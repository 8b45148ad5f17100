"""Codes of a tiled weight as words of four int8, and integer sums of a block that arrive as floats.

A word of codes holds elements 4w .. 4w + 3 of a block of 32, the lowest first; the layouts are those of lib/weights.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.codes import NIBBLE_SIGNS, ONES, SIGNS, nibble_levels, twice_e2m1
from samebits.kernels.triton.lib.kinds import has_e2m1, has_fifth_bits, has_levels, is_around_eight
from samebits.kernels.triton.lib.registry import EMULATE

UPPER = tl.constexpr(0xF0F0F0F0 - (1 << 32))


@triton.jit
def pair(both):
    """The two 32-bit values of int64 words."""
    return both.to(tl.int32), (both >> 32).to(tl.int32)


@triton.jit
def shift_right(word, count):
    """Logical shift of int32 words."""
    return (word.to(tl.uint32, bitcast=True) >> count).to(tl.int32, bitcast=True)


@triton.jit
def less(word, CONSTANT: tl.constexpr):
    """Each byte, 0 .. 127, minus a constant up to 128, as int8."""
    return ((word | SIGNS) - CONSTANT * ONES) ^ SIGNS


@triton.jit
def nibble_words(low, high_low, high_high, FORMAT: tl.constexpr):
    """int8 words of the low and the high nibbles of `low`; times 16 where those are around 8 (see terms.py).

    high_low, high_high: words whose bytes hold the bits above the nibble in place, for q5 and q6.
    """
    if is_around_eight(FORMAT):
        # bit 3 flipped makes a nibble two's complement; in the upper half of a byte it needs no sign extension
        flipped = low ^ NIBBLE_SIGNS
        return (flipped << 4) & UPPER, flipped & UPPER
    first, second = low & 0x0F0F0F0F, (low >> 4) & 0x0F0F0F0F
    if has_levels(FORMAT):
        return nibble_levels(low, not EMULATE)
    if has_e2m1(FORMAT):
        return twice_e2m1(first), twice_e2m1(second)
    if has_fifth_bits(FORMAT) or (FORMAT == "q6_k"):
        first, second = first | high_low, second | high_high
    if FORMAT == "q5_0":
        return less(first, 16), less(second, 16)
    if FORMAT == "q6_k":
        return less(first, 32), less(second, 32)
    return first, second
