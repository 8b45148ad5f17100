"""What a lane of a warp reads of a tile of 16 rows: its words of codes and the scales of rows g and g + 8.

Loading and unpacking are apart, so that a kernel can load blocks ahead of their use.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.codes import ONES, block_scale, e4m3
from samebits.kernels.triton.lib.kinds import (
    has_fifth_bits,
    has_halves,
    has_offset,
    has_scaled_codes,
    has_sub_offset,
    is_super,
)
from samebits.kernels.triton.products.blocks.many.words import nibble_words, shift_right


@triton.jit
def tile_pointers(planes, tile, nb, lane, FORMAT: tl.constexpr):
    """Where a lane begins to read a tile of 16 rows: codes, high bits, d, m, sub, msub of row g."""
    codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr = planes
    block = tile.to(tl.int64) * nb
    g = lane // 4
    shared = block
    if is_super(FORMAT):
        shared = block // 8
    PER_ROW: tl.constexpr = 2 if has_halves(FORMAT) or has_scaled_codes(FORMAT) else 1
    return (
        codes_ptr + block * (128 if FORMAT == "q8_0" else 64) + lane,
        high_ptr + block * (32 if FORMAT == "q6_k" else 16) + g * (2 if FORMAT == "q6_k" else 1),
        d_ptr + shared * 16 + g,
        m_ptr + shared * 16 + g,
        sub_ptr + block * (16 * PER_ROW) + g * PER_ROW,
        msub_ptr + block * 16 + g,
    )


@triton.jit
def at_block(pointers, b, FORMAT: tl.constexpr):
    """The pointers of a tile moved on to block b."""
    codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr = pointers
    b = b.to(tl.int64)
    shared = b
    if is_super(FORMAT):
        shared = b // 8
    PER_ROW: tl.constexpr = 2 if has_halves(FORMAT) or has_scaled_codes(FORMAT) else 1
    return (
        codes_ptr + b * (128 if FORMAT == "q8_0" else 64),
        high_ptr + b * (32 if FORMAT == "q6_k" else 16),
        d_ptr + shared * 16,
        m_ptr + shared * 16,
        sub_ptr + b * (16 * PER_ROW),
        msub_ptr + b * 16,
    )


@triton.jit
def load_block(pointers, J: tl.constexpr, FORMAT: tl.constexpr):
    """Block J after the pointers, as stored: (words, words of high bits, scales that a block has of its own)."""
    codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr = pointers
    if FORMAT == "q8_0":
        at = codes_ptr + J * 128
        words = (tl.load(at), tl.load(at + 32), tl.load(at + 64), tl.load(at + 96))
    else:
        at = codes_ptr + J * 64
        words = (tl.load(at), tl.load(at + 32))
    high = ()
    if has_fifth_bits(FORMAT):
        at = high_ptr + J * 16
        high = (tl.load(at), tl.load(at + 8))
    if FORMAT == "q6_k":
        at = high_ptr + J * 32
        high = (tl.load(at), tl.load(at + 16), tl.load(at + 1), tl.load(at + 17))
    if has_halves(FORMAT) or has_scaled_codes(FORMAT):
        at = sub_ptr + J * 32
        scales = (tl.load(at), tl.load(at + 16), tl.load(at + 1), tl.load(at + 17))
    elif has_sub_offset(FORMAT):
        sub, msub = sub_ptr + J * 16, msub_ptr + J * 16
        scales = (tl.load(sub), tl.load(sub + 8), tl.load(msub), tl.load(msub + 8))
    else:
        scales = (tl.load(d_ptr + J * 16), tl.load(d_ptr + J * 16 + 8))
        if has_offset(FORMAT):
            scales += (tl.load(m_ptr + J * 16), tl.load(m_ptr + J * 16 + 8))
    return words, high, scales


@triton.jit
def load_shared(pointers, FORMAT: tl.constexpr):
    """The scales that a chunk shares, float32: d and minus dmin of the k-quants."""
    shared = ()
    if is_super(FORMAT):
        shared += (tl.load(pointers[2]).to(tl.float32), tl.load(pointers[2] + 8).to(tl.float32))
    if has_sub_offset(FORMAT) or has_scaled_codes(FORMAT):
        shared += (-tl.load(pointers[3]).to(tl.float32), -tl.load(pointers[3] + 8).to(tl.float32))
    return shared


@triton.jit
def fragment(words, high, scales, t, FORMAT: tl.constexpr):
    """int8 words of a lane: first halves of rows g and g + 8, then their second halves."""
    if FORMAT == "q8_0":
        return words
    else:
        h0, h1, h2, h3 = words[0], words[0], words[0], words[0]
        if has_fifth_bits(FORMAT):
            h0, h1 = (shift_right(high[0], t) & ONES) << 4, (shift_right(high[1], t) & ONES) << 4
            h2, h3 = (shift_right(high[0], t + 4) & ONES) << 4, (shift_right(high[1], t + 4) & ONES) << 4
        if FORMAT == "q6_k":
            h0 = (shift_right(high[0], 2 * t) & 0x03030303) << 4
            h1 = (shift_right(high[1], 2 * t) & 0x03030303) << 4
            h2 = (shift_right(high[2], 2 * t) & 0x03030303) << 4
            h3 = (shift_right(high[3], 2 * t) & 0x03030303) << 4
        a0, a2 = nibble_words(words[0], h0, h2, FORMAT)
        a1, a3 = nibble_words(words[1], h1, h3, FORMAT)
        if has_scaled_codes(FORMAT):
            a0, a1, a2, a3 = a0 * _low(scales[0]), a1 * _low(scales[1]), a2 * _low(scales[2]), a3 * _low(scales[3])
        return a0, a1, a2, a3


@triton.jit
def row_scales(scales, shared, scale, FORMAT: tl.constexpr):
    """d, m, sub, second (of the second half, or of m), each for rows g, g + 8; what a format lacks repeats another.

    Of q2_k, sub and second are words of the minimums of both halves.
    """
    if FORMAT == "nvfp4":
        d0 = tl.full(scales[0].shape, 0.0, tl.float32) + scale
        d = (d0, d0)
        return d, d, (_e4m3(scales[0]), _e4m3(scales[1])), (_e4m3(scales[2]), _e4m3(scales[3]))
    elif has_scaled_codes(FORMAT):
        sub = (_high(scales[0]) * ONES, _high(scales[1]) * ONES)
        second = (_high(scales[2]) * ONES, _high(scales[3]) * ONES)
        return (shared[0], shared[1]), (shared[2], shared[3]), sub, second
    elif has_halves(FORMAT):
        sub = (_signed(scales[0]), _signed(scales[1]))
        return shared, shared, sub, (_signed(scales[2]), _signed(scales[3]))
    elif has_sub_offset(FORMAT):
        sub = (scales[0].to(tl.float32), scales[1].to(tl.float32))
        second = (scales[2].to(tl.float32), scales[3].to(tl.float32))
        return (shared[0], shared[1]), (shared[2], shared[3]), sub, second
    else:
        d = (block_scale(scales[0], FORMAT), block_scale(scales[1], FORMAT))
        m = d
        if has_offset(FORMAT):
            m = (scales[2].to(tl.float32), scales[3].to(tl.float32))
        return d, m, d, d


@triton.jit
def _e4m3(byte):
    return e4m3(byte.to(tl.int32))


@triton.jit
def _signed(byte):
    return byte.to(tl.int8, bitcast=True).to(tl.float32)


@triton.jit
def _low(byte):
    return byte.to(tl.int32) & 15


@triton.jit
def _high(byte):
    return byte.to(tl.int32) >> 4
