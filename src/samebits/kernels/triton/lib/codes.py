"""Codes and scales of block formats as numbers."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from samebits.formats.iq4_nl import LEVELS
from samebits.formats.nvfp4 import TWICE_E2M1

# as int32, since a constant beyond 2^31 would widen what it meets
ONES = tl.constexpr(0x01010101)
SIGNS = tl.constexpr(0x80808080 - (1 << 32))
NIBBLE_SIGNS = tl.constexpr(0x88888888 - (1 << 32))
# the lower and the upper eight of them as one number each
LOWER_LEVELS = tl.constexpr(int(LEVELS[:8].view("<i8")[0]))
UPPER_LEVELS = tl.constexpr(int(LEVELS[8:].view("<i8")[0]))
E4M3_BIAS = tl.constexpr(2.0**8)  # what its exponents are below those of float16


def _table_asm(table: np.ndarray) -> str:
    """int8 [16] as PTX that looks up the low and the high nibbles of a word, two words of four bytes."""
    low, low_end, high, high_end = (f"0x{word:08X}" for word in table.view("<u4").tolist())
    looked_up = [f"prmt.b32 pos, {low}, {low_end}, code;", f"prmt.b32 neg, {high}, {high_end}, code;"]
    lines = [
        ".reg .b32 code, pick, pos, neg, even, odd;",
        "and.b32 code, $2, 0x77777777;",
        "shr.u32 pick, $2, 1;",
        "lop3.b32 pick, pick, 0x44444444, 0x32103210, 0xEA;",
        *looked_up,
        "prmt.b32 even, pos, neg, pick;",
        "shr.u32 code, code, 16;",
        "shr.u32 pick, pick, 16;",
        *looked_up,
        "prmt.b32 odd, pos, neg, pick;",
        "prmt.b32 $0, even, odd, 0x6420;",
        "prmt.b32 $1, even, odd, 0x7531;",
    ]
    return "\n".join(["{", *lines, "}"])


E2M1_ASM = tl.constexpr(_table_asm(TWICE_E2M1))
LEVELS_ASM = tl.constexpr(_table_asm(LEVELS))


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


@triton.jit
def level(code):
    """int32 codes 0 .. 15 to the levels of formats/iq4_nl.py."""
    table = tl.where(code < 8, LOWER_LEVELS, UPPER_LEVELS)
    return (table >> ((code & 7) * 8).to(tl.int64)).to(tl.int32) << 24 >> 24


@triton.jit
def levels(word):
    """Bytes that hold codes 0 .. 15 to int8 of their levels."""
    result = level(word & 15) & 255
    for i in tl.static_range(1, 4):
        result |= (level((word >> (8 * i)) & 15) & 255) << (8 * i)
    return result


@triton.jit
def nibble_levels(word, PTX: tl.constexpr):
    """int8 words of the levels of a word's low nibbles and of its high ones."""
    if PTX:
        return tl.inline_asm_elementwise(LEVELS_ASM, "=&r,=&r,r", [word], (tl.int32, tl.int32), True, 1)
    return levels(word & 0x0F0F0F0F), levels((word >> 4) & 0x0F0F0F0F)
