"""What a lane of a warp reads of a tile of 16 rows: its words of codes and the scales of rows g and g + 8.

Loading and unpacking are apart, so that a kernel can load blocks ahead of their use.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.codes import ONES, block_scale, e4m3
from samebits.kernels.triton.products.blocks.many.words import nibble_words, shift_right


@triton.jit
def tile_pointers(planes, tile, nb, lane, FORMAT: tl.constexpr):
    """Where a lane begins to read a tile of 16 rows: codes, high bits, d, m, sub, msub of row g."""
    codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr = planes
    block = tile.to(tl.int64) * nb
    g = lane // 4
    shared = block
    if (FORMAT == "q4_k") | (FORMAT == "q5_k") | (FORMAT == "q6_k"):
        shared = block // 8
    PER_ROW: tl.constexpr = 2 if (FORMAT == "q6_k") | (FORMAT == "nvfp4") else 1
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
    if (FORMAT == "q4_k") | (FORMAT == "q5_k") | (FORMAT == "q6_k"):
        shared = b // 8
    PER_ROW: tl.constexpr = 2 if (FORMAT == "q6_k") | (FORMAT == "nvfp4") else 1
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
    if (FORMAT == "q5_0") | (FORMAT == "q5_1") | (FORMAT == "q5_k"):
        at = high_ptr + J * 16
        high = (tl.load(at), tl.load(at + 8))
    if FORMAT == "q6_k":
        at = high_ptr + J * 32
        high = (tl.load(at), tl.load(at + 16), tl.load(at + 1), tl.load(at + 17))
    if (FORMAT == "q6_k") | (FORMAT == "nvfp4"):
        at = sub_ptr + J * 32
        scales = (tl.load(at), tl.load(at + 16), tl.load(at + 1), tl.load(at + 17))
    elif (FORMAT == "q4_k") | (FORMAT == "q5_k"):
        sub, msub = sub_ptr + J * 16, msub_ptr + J * 16
        scales = (tl.load(sub), tl.load(sub + 8), tl.load(msub), tl.load(msub + 8))
    else:
        scales = (tl.load(d_ptr + J * 16), tl.load(d_ptr + J * 16 + 8))
        if (FORMAT == "q4_1") | (FORMAT == "q5_1"):
            scales += (tl.load(m_ptr + J * 16), tl.load(m_ptr + J * 16 + 8))
    return words, high, scales


@triton.jit
def load_shared(pointers, FORMAT: tl.constexpr):
    """The scales that a chunk shares, float32: d and minus dmin of the k-quants."""
    shared = ()
    if (FORMAT == "q4_k") | (FORMAT == "q5_k") | (FORMAT == "q6_k"):
        shared += (tl.load(pointers[2]).to(tl.float32), tl.load(pointers[2] + 8).to(tl.float32))
    if (FORMAT == "q4_k") | (FORMAT == "q5_k"):
        shared += (-tl.load(pointers[3]).to(tl.float32), -tl.load(pointers[3] + 8).to(tl.float32))
    return shared


@triton.jit
def fragment(words, high, t, FORMAT: tl.constexpr):
    """int8 words of a lane: first halves of rows g and g + 8, then their second halves."""
    if FORMAT == "q8_0":
        return words
    else:
        h0, h1, h2, h3 = words[0], words[0], words[0], words[0]
        if (FORMAT == "q5_0") | (FORMAT == "q5_1") | (FORMAT == "q5_k"):
            h0, h1 = (shift_right(high[0], t) & ONES) << 4, (shift_right(high[1], t) & ONES) << 4
            h2, h3 = (shift_right(high[0], t + 4) & ONES) << 4, (shift_right(high[1], t + 4) & ONES) << 4
        if FORMAT == "q6_k":
            h0 = (shift_right(high[0], 2 * t) & 0x03030303) << 4
            h1 = (shift_right(high[1], 2 * t) & 0x03030303) << 4
            h2 = (shift_right(high[2], 2 * t) & 0x03030303) << 4
            h3 = (shift_right(high[3], 2 * t) & 0x03030303) << 4
        a0, a2 = nibble_words(words[0], h0, h2, FORMAT)
        a1, a3 = nibble_words(words[1], h1, h3, FORMAT)
        return a0, a1, a2, a3


@triton.jit
def row_scales(scales, shared, scale, FORMAT: tl.constexpr):
    """d, m, sub, second (of the second half, or of m), each for rows g, g + 8; what a format lacks repeats another."""
    if FORMAT == "nvfp4":
        d0 = tl.full(scales[0].shape, 0.0, tl.float32) + scale
        d = (d0, d0)
        return d, d, (_e4m3(scales[0]), _e4m3(scales[1])), (_e4m3(scales[2]), _e4m3(scales[3]))
    elif FORMAT == "q6_k":
        sub = (_signed(scales[0]), _signed(scales[1]))
        return shared, shared, sub, (_signed(scales[2]), _signed(scales[3]))
    elif (FORMAT == "q4_k") | (FORMAT == "q5_k"):
        sub = (scales[0].to(tl.float32), scales[1].to(tl.float32))
        second = (scales[2].to(tl.float32), scales[3].to(tl.float32))
        return (shared[0], shared[1]), (shared[2], shared[3]), sub, second
    else:
        d = (block_scale(scales[0], FORMAT), block_scale(scales[1], FORMAT))
        m = d
        if (FORMAT == "q4_1") | (FORMAT == "q5_1"):
            m = (scales[2].to(tl.float32), scales[3].to(tl.float32))
        return d, m, d, d


@triton.jit
def _e4m3(byte):
    return e4m3(byte.to(tl.int32))


@triton.jit
def _signed(byte):
    return byte.to(tl.int8, bitcast=True).to(tl.float32)
