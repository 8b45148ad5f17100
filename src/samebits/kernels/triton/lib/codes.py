"""Codes and scales of block formats as numbers."""

from __future__ import annotations

import triton
import triton.language as tl

# as int32, since a constant beyond 2^31 would widen what it meets
ONES = tl.constexpr(0x01010101)
SIGNS = tl.constexpr(0x80808080 - (1 << 32))
NIBBLE_SIGNS = tl.constexpr(0x88888888 - (1 << 32))
E4M3_BIAS = tl.constexpr(2.0**8)  # what its exponents are below those of float16


@triton.jit
def e4m3(byte):
    """float32 of an e4m3 number in an int32; its NaN is not one here.

    By way of float16, whose subnormals every device converts; as a pattern of float32 some would be subnormal there.
    """
    pattern = ((byte & 0x7F) << 7) | ((byte & 0x80) << 8)
    return pattern.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * E4M3_BIAS


@triton.jit
def block_scale(stored, FORMAT: tl.constexpr):
    """float32 of a block's d as the tiled weights hold it: a float16, or the exponent of mxfp4's power of two."""
    if FORMAT == "mxfp4":
        return (stored.to(tl.int32) << 23).to(tl.float32, bitcast=True)
    return stored.to(tl.float32)


@triton.jit
def twice_e2m1(word):
    """Bytes that hold E2M1 codes, 0 .. 15, to int8 of twice their values: 0 1 2 3 4 6 8 12 and the negatives."""
    magnitude = word & 0x07070707
    beyond = magnitude & (((magnitude >> 2) & ONES) * 3)  # m - 4 from 4 on
    value = magnitude + beyond + ((beyond & (beyond >> 1) & ONES) << 1)
    negative = (word >> 3) & ONES
    flipped = value ^ (negative * 255)
    return ((flipped & ~SIGNS) + negative) ^ (flipped & SIGNS)
