"""Codes of a tiled weight as words of four int8, and integer sums of a block that arrive as floats.

A word of codes holds elements 4w .. 4w + 3 of a block of 32, the lowest first; the layouts are those of lib/weights.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

BYTES = tl.constexpr(0x01010101)
# as int32, since a constant beyond 2^31 would widen what it meets
SIGNS = tl.constexpr(0x80808080 - (1 << 32))
EIGHTS = tl.constexpr(0x88888888 - (1 << 32))
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
    return ((word | SIGNS) - CONSTANT * BYTES) ^ SIGNS


@triton.jit
def twice_e2m1(word):
    """Bytes that hold E2M1 codes, 0 .. 15, to int8 of twice their values: 0 1 2 3 4 6 8 12 and the negatives."""
    magnitude = word & 0x07070707
    beyond = magnitude & (((magnitude >> 2) & BYTES) * 3)  # m - 4 from 4 on
    value = magnitude + beyond + ((beyond & (beyond >> 1) & BYTES) << 1)
    negative = (word >> 3) & BYTES
    flipped = value ^ (negative * 255)
    return ((flipped & ~SIGNS) + negative) ^ (flipped & SIGNS)


@triton.jit
def nibble_words(low, high_low, high_high, FORMAT: tl.constexpr):
    """int8 words of the low and the high nibbles of `low`; times 16 for q4_0 (see unit).

    high_low, high_high: words whose bytes hold the bits above the nibble in place, for q5 and q6.
    """
    if FORMAT == "q4_0":
        # bit 3 flipped makes a nibble two's complement; in the upper half of a byte it needs no sign extension
        flipped = low ^ EIGHTS
        return (flipped << 4) & UPPER, flipped & UPPER
    first, second = low & 0x0F0F0F0F, (low >> 4) & 0x0F0F0F0F
    if FORMAT == "nvfp4":
        return twice_e2m1(first), twice_e2m1(second)
    if (FORMAT == "q5_0") | (FORMAT == "q5_1") | (FORMAT == "q5_k") | (FORMAT == "q6_k"):
        first, second = first | high_low, second | high_high
    if FORMAT == "q5_0":
        return less(first, 16), less(second, 16)
    if FORMAT == "q6_k":
        return less(first, 32), less(second, 32)
    return first, second
