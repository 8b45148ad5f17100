"""The pieces of a block-quantized product: words of codes, exact integer sums, the term of a block of 32.

`code_words` gives a block's codes as words of four signed bytes, scaled by 2^SHIFT where that saves taking an offset
off. Sums start at `sum_start`, and `sum_value` turns them into float32 without a conversion: the integer is added to
the bits of 1.5 * 2^(23 - SHIFT), whose last place is worth 2^-SHIFT. Exact for sums below 2^22.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.codes import (
    E2M1_ASM,
    NIBBLE_SIGNS,
    ONES,
    SIGNS,
    block_scale,
    e4m3,
    nibble_levels,
    twice_e2m1,
)
from samebits.kernels.triton.lib.kinds import (
    has_e2m1,
    has_fifth_bits,
    has_halves,
    has_levels,
    has_offset,
    has_scaled_codes,
    has_sub_offset,
    is_around_eight,
    is_super,
)

FOUR_WORDS = tl.constexpr((tl.int32, tl.int32, tl.int32, tl.int32))  # types of an instruction's results

# log2 of what the bytes of code_words are scaled by: q - 8, q - 16 and q - 32 in the upper bits of a byte.
SHIFTS = {"q4_0": 4, "q3_k": 4, "q5_0": 3, "q6_k": 2}
MAGIC_BITS = tl.constexpr(0x4B400000)  # of 1.5 * 2^23
MAGIC = tl.constexpr(1.5 * 2.0**23)

# Which loads are masked: none, those of chunks beyond K (NB is a multiple of 8), those of blocks beyond K.
NO_MASK = tl.constexpr(0)
CHUNK_MASK = tl.constexpr(1)
BLOCK_MASK = tl.constexpr(2)


@triton.jit
def plane_pointers(data_ptr, offsets, tile, NB: tl.constexpr, FORMAT: tl.constexpr):
    """Pointers to a tile's codes, high bits, d, m, sub, msub, typed as they are read; offsets from lib/weights.py."""
    tile = tile.to(tl.int64)
    rows = tile * NB * 16
    groups = rows
    if is_super(FORMAT):
        groups = tile * (NB // 8) * 16
    words = tl.pointer_type(tl.int32)
    halves = tl.pointer_type(tl.float16)
    codes = (data_ptr + offsets[0]).to(words) + rows * (8 if FORMAT == "q8_0" else 4)
    high = (data_ptr + offsets[1]).to(words) + rows * (2 if FORMAT == "q6_k" else 1)
    d = data_ptr + offsets[2] + groups if FORMAT == "mxfp4" else (data_ptr + offsets[2]).to(halves) + groups
    m = (data_ptr + offsets[3]).to(halves) + groups
    sub = data_ptr + offsets[4]
    if has_halves(FORMAT) or has_scaled_codes(FORMAT):
        return codes, high, d, m, sub.to(tl.pointer_type(tl.int16)) + rows, sub
    else:
        return codes, high, d, m, sub + rows, data_ptr + offsets[5] + rows


@triton.jit
def load_each(ptr, at, keep, MASK: tl.constexpr):
    """What is at each offset [P], 0 where not kept."""
    if MASK == NO_MASK:
        return tl.load(ptr + at)
    return tl.load(ptr + at, mask=keep, other=0)


@triton.jit
def kept(chunk, i, NB: tl.constexpr, MASK: tl.constexpr):
    """Whether block i of a chunk is inside K."""
    if MASK == BLOCK_MASK:
        return chunk * 8 + i < NB
    return chunk * 8 < NB


@triton.jit
def load_scales(planes, at, keep, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """What a block has beside its codes, as stored, at offsets of a plane with one entry a row and block: a tuple.

    (d), (d, m), (sub, msub) of q4_k and q5_k, the scales of two halves in one number.
    """
    if has_sub_offset(FORMAT):
        return load_each(planes[4], at, keep, MASK), load_each(planes[5], at, keep, MASK)
    elif has_halves(FORMAT) or has_scaled_codes(FORMAT):
        return (load_each(planes[4], at, keep, MASK),)
    elif has_offset(FORMAT):
        return load_each(planes[2], at, keep, MASK), load_each(planes[3], at, keep, MASK)
    else:
        return (load_each(planes[2], at, keep, MASK),)


@triton.jit
def block_scales(stored, d, m, FORMAT: tl.constexpr):
    """(d, m, sub, msub) as block_term wants them, of what load_scales and chunk_scales gave."""
    sub, msub = d, m
    if FORMAT == "nvfp4":
        pair = stored[0].to(tl.int32)
        sub, msub = e4m3(pair & 0xFF), e4m3((pair >> 8) & 0xFF)
    elif has_halves(FORMAT):
        pair = stored[0].to(tl.int32)
        sub, msub = ((pair << 24) >> 24).to(tl.float32), (pair >> 8).to(tl.float32)
    elif has_sub_offset(FORMAT):
        sub, msub = stored[0].to(tl.float32), stored[1].to(tl.float32)
    elif not is_super(FORMAT):
        d = block_scale(stored[0], FORMAT)
        if has_offset(FORMAT):
            m = stored[1].to(tl.float32)
    return d, m, sub, msub


@triton.jit
def load_chunk_scales(planes, tile, chunk, row, NB: tl.constexpr, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """What the blocks of a chunk share, as stored: (d, dmin) or (d) of the k-quants, nothing elsewhere."""
    at = (tile * (NB // 8) + chunk) * 16 + row
    keep = chunk < NB // 8
    if has_sub_offset(FORMAT) or has_scaled_codes(FORMAT):
        return load_each(planes[2], at, keep, MASK), load_each(planes[3], at, keep, MASK)
    elif is_super(FORMAT):
        return (load_each(planes[2], at, keep, MASK),)
    else:
        return ()


@triton.jit
def chunk_scales(stored, scale, like, FORMAT: tl.constexpr):
    """(d, m) of a chunk: d and -dmin of the k-quants, the tensor's scale of nvfp4; nothing of use elsewhere."""
    if has_sub_offset(FORMAT) or has_scaled_codes(FORMAT):
        return stored[0].to(tl.float32), -stored[1].to(tl.float32)
    elif is_super(FORMAT):
        d = stored[0].to(tl.float32)
        return d, d
    else:
        d = tl.zeros(like.shape, tl.float32) + scale
        return d, d


@triton.jit
def high_bits(high_ptr, at, keep, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """A tuple: the word of fifth bits, the two words of high bits of q6_k, or nothing."""
    if FORMAT == "q6_k":
        return load_each(high_ptr, at * 2, keep, MASK), load_each(high_ptr, at * 2 + 1, keep, MASK)
    elif has_fifth_bits(FORMAT):
        return (load_each(high_ptr, at, keep, MASK),)
    else:
        return ()


@triton.jit
def dp4a(a, b, c, PTX: tl.constexpr):
    """c + the four products of signed bytes."""
    if PTX:
        return tl.inline_asm_elementwise("dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c], tl.int32, True, 1)
    for i in tl.static_range(4):
        c += ((a << (24 - 8 * i)) >> 24) * ((b << (24 - 8 * i)) >> 24)
    return c


@triton.jit
def word_sums(a, b):
    """What half a matrix instruction sums, in plain arithmetic: int32 of tokens 2t and 2t + 1 in lane 4g + t of a warp.

    a, b   in lane 4g + t word t of row g, word t of token g
    """
    WARPS: tl.constexpr = a.shape[0] // 32
    rows = tl.reshape(a, [WARPS, 8, 1, 4])
    tokens = tl.reshape(b, [WARPS, 1, 8, 4])
    total = (rows << 24 >> 24) * (tokens << 24 >> 24)
    for i in tl.static_range(1, 4):
        total += (rows << (24 - 8 * i) >> 24) * (tokens << (24 - 8 * i) >> 24)
    even, odd = tl.split(tl.reshape(tl.sum(total, axis=3), [WARPS, 8, 4, 2]))
    return tl.reshape(even, [WARPS * 32]), tl.reshape(odd, [WARPS * 32])


@triton.jit
def split4(x):
    """int32 [P, 4] as its four words."""
    even, odd = tl.split(tl.reshape(x, [x.shape[0], 2, 2]))
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def moved(x, LEFT: tl.constexpr):
    """x shifted left, or right where LEFT is negative; the caller masks what comes in."""
    if LEFT >= 0:
        return x << LEFT
    return x >> (-LEFT)


@triton.jit
def code_words(w, high, G: tl.constexpr, FORMAT: tl.constexpr, PTX: tl.constexpr):
    """Elements 4G .. 4G + 3 and 16 + 4G .. of a block as words, from word G of its 4-bit codes.

    high: of high_bits
    """
    if is_around_eight(FORMAT):
        signed = w ^ NIBBLE_SIGNS
        return (signed << 4) & ~0x0F0F0F0F, signed & ~0x0F0F0F0F
    elif FORMAT == "q5_0":
        low = ((w << 3) & 0x78787878) | ((moved(high[0], 7 - G) & SIGNS) ^ SIGNS)
        return low, ((w >> 1) & 0x78787878) | ((moved(high[0], 3 - G) & SIGNS) ^ SIGNS)
    elif (FORMAT == "q5_1") or (FORMAT == "q5_k"):
        low = (w & 0x0F0F0F0F) | (moved(high[0], 4 - G) & 0x10101010)
        return low, ((w >> 4) & 0x0F0F0F0F) | (moved(high[0], -G) & 0x10101010)
    elif FORMAT == "q6_k":
        low = ((w << 2) & 0x3C3C3C3C) | ((moved(high[0], 6 - 2 * G) & ~0x3F3F3F3F) ^ SIGNS)
        return low, ((w >> 2) & 0x3C3C3C3C) | ((moved(high[1], 6 - 2 * G) & ~0x3F3F3F3F) ^ SIGNS)
    elif has_levels(FORMAT):
        return nibble_levels(w, PTX)
    elif has_e2m1(FORMAT):
        if PTX:
            return tl.inline_asm_elementwise(E2M1_ASM, "=&r,=&r,r", [w], (tl.int32, tl.int32), True, 1)
        return twice_e2m1(w & 0x0F0F0F0F), twice_e2m1((w >> 4) & 0x0F0F0F0F)
    else:
        return w & 0x0F0F0F0F, (w >> 4) & 0x0F0F0F0F


@triton.jit
def scaled_words(first, second, pair):
    """Words of q2_k's codes times the scales of their halves, which lie in one number: bytes up to 45."""
    return first * (pair & 15), second * ((pair >> 8) & 15)


@triton.jit
def minimum_words(pair):
    """The minimums of q2_k's halves, four times each: what they are multiplied by is summed like codes."""
    return ((pair >> 4) & 15) * ONES, ((pair >> 12) & 15) * ONES


@triton.jit
def sum_start(like, SHIFT: tl.constexpr):
    """int32 in the shape of `like`: where an integer sum starts, see the module."""
    return tl.full(like.shape, MAGIC_BITS - (SHIFT << 23), tl.int32)


@triton.jit
def sum_value(total, SHIFT: tl.constexpr):
    """float32: the integer sum, without its 2^SHIFT."""
    return total.to(tl.float32, bitcast=True) - MAGIC / (1 << SHIFT)


@triton.jit
def block_term(isum, hsum, asum, d, m, sub, msub, sa, FORMAT: tl.constexpr):
    """The term of a block, all float32: isum of the block, or isum and hsum of its halves; docs/numerics.md, section 4.

    d    the block's or super-block's; (0.5 * scale) of nvfp4
    m    m of q4_1 and q5_1, -dmin of the k-quants
    sub, msub   the 6-bit scale and minimum; the scales of the two halves
    isum, asum  of q2_k are of scaled_words and minimum_words
    """
    if has_halves(FORMAT):
        # The products are exact, so fma rounds as their sum does.
        return tl.fma(hsum, msub, isum * sub) * (d * sa)
    elif has_sub_offset(FORMAT):
        return ((isum * sub) * (d * sa)) + ((asum * msub) * (m * sa))
    elif has_offset(FORMAT) or has_scaled_codes(FORMAT):
        return (isum * (d * sa)) + (asum * (m * sa))
    else:
        return isum * (d * sa)
