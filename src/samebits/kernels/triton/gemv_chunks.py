"""One token: chunk sums of a block-quantized product, a lane owns a row of a tile and a chunk of 8 blocks.

Every tensor is [P], one number a thread: P lanes = (tile, chunk, row of 16), rows fastest, so that a warp reads whole
tiles and no layout but one exists.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.gemv_terms import (
    BLOCK_MASK,
    NO_MASK,
    ONES,
    block_scales,
    block_term,
    chunk_scales,
    code_words,
    dp4a,
    high_bits,
    kept,
    load_chunk_scales,
    load_each,
    load_scales,
    split4,
    sum_start,
    sum_value,
)


@triton.jit
def load_words(ptr, at, keep, MASK: tl.constexpr):
    """The four words of 16 bytes at each of the word offsets `at` [P]."""
    at = at[:, None] + tl.arange(0, 4)[None, :]
    if MASK == NO_MASK:
        return split4(tl.load(ptr + at))
    return split4(tl.load(ptr + at, mask=keep[:, None], other=0))


@triton.jit
def block_factors(sa_ptr, at, chunk, NB: tl.constexpr, MASK: tl.constexpr):
    """The activations' scales of a chunk's 8 blocks, the first at offset `at` [P]."""
    if MASK == BLOCK_MASK:
        scales = ()
        for i in tl.static_range(8):
            scales += (load_each(sa_ptr, at + i, chunk * 8 + i < NB, MASK),)
        return scales
    else:
        keep = chunk * 8 < NB
        return load_words(sa_ptr, at, keep, MASK) + load_words(sa_ptr, at + 4, keep, MASK)


@triton.jit
def load_chunk(planes, tile, chunk, row, NB: tl.constexpr, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """Everything of a chunk, as stored, in one flat tuple: eight times (words of codes, high bits, scales), the shared.

    All at once, so that many loads are on their way.
    """
    parts = ()
    at_chunk = tile * NB + chunk * 8
    for i in tl.static_range(8):
        keep = kept(chunk, i, NB, MASK)
        at = at_chunk * 16 + (row + i * 16)
        if FORMAT == "q8_0":
            at_codes = at_chunk * 128 + (row * 4 + i * 128)
            parts = parts + load_words(planes[0], at_codes, keep, MASK)
            parts = parts + load_words(planes[0], at_codes + 64, keep, MASK)
        else:
            parts = parts + load_words(planes[0], at * 4, keep, MASK)
        parts = parts + high_bits(planes[1], at, keep, FORMAT, MASK)
        parts = parts + load_scales(planes, at, keep, FORMAT, MASK)
    return parts + load_chunk_scales(planes, tile, chunk, row, NB, FORMAT, MASK)


@triton.jit
def integer_sums(block, a0, a1, FORMAT: tl.constexpr, SHIFT: tl.constexpr, PTX: tl.constexpr):
    """float32 sums of the two halves of a block; the whole block in the first where the format needs no more."""
    low = sum_start(a0[0], SHIFT)
    upper = low
    for g in tl.static_range(4):
        if FORMAT == "q8_0":
            low = dp4a(block[4 + g], a1[g], dp4a(block[g], a0[g], low, PTX), PTX)
        else:
            w_low, w_high = code_words(block[g], block[4:], g, FORMAT, PTX)
            low = dp4a(w_low, a0[g], low, PTX)
            if (FORMAT == "q6_k") or (FORMAT == "nvfp4"):
                upper = dp4a(w_high, a1[g], upper, PTX)
            else:
                low = dp4a(w_high, a1[g], low, PTX)
    return sum_value(low, SHIFT), sum_value(upper, SHIFT)


@triton.jit
def code_sum(a0, a1, PTX: tl.constexpr):
    """float32: the sum of a block's activation codes."""
    total = sum_start(a0[0], 0)
    ones = tl.full(total.shape, ONES, tl.int32)
    for g in tl.static_range(4):
        total = dp4a(a1[g], ones, dp4a(a0[g], ones, total, PTX), PTX)
    return sum_value(total, 0)


@triton.jit
def chunk_sums(
    parts,
    a_ptr,
    sa_ptr,
    chunk,
    scale,
    NB: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    MASK: tl.constexpr,
    PTX: tl.constexpr,
):
    """float32 [P]: the chain over the 8 blocks of a chunk that load_chunk gave.

    a_ptr: the codes as words; scale: 0.5 * the tensor's, for nvfp4
    """
    words: tl.constexpr = 8 if FORMAT == "q8_0" else 4
    fifth: tl.constexpr = (FORMAT == "q5_0") or (FORMAT == "q5_1") or (FORMAT == "q5_k")
    offset: tl.constexpr = (FORMAT == "q4_1") or (FORMAT == "q5_1") or (FORMAT == "q4_k") or (FORMAT == "q5_k")
    scales_at: tl.constexpr = words + (1 if fifth else (2 if FORMAT == "q6_k" else 0))
    size: tl.constexpr = scales_at + (2 if offset else 1)
    d, m = chunk_scales(parts[8 * size :], scale, chunk, FORMAT)
    sa = block_factors(sa_ptr, chunk * 8, chunk, NB, MASK)
    sums = tl.zeros([chunk.shape[0]], tl.float32)
    for i in tl.static_range(8):
        keep = kept(chunk, i, NB, MASK)
        block = parts[i * size : (i + 1) * size]
        a0 = load_words(a_ptr, (chunk * 8 + i) * 8, keep, MASK)
        a1 = load_words(a_ptr, (chunk * 8 + i) * 8 + 4, keep, MASK)
        isum, hsum = integer_sums(block, a0, a1, FORMAT, SHIFT, PTX)
        asum = isum
        if offset:
            asum = code_sum(a0, a1, PTX)
        d, m, sub, msub = block_scales(block[scales_at:], d, m, FORMAT)
        sums = sums + block_term(isum, hsum, asum, d, m, sub, msub, sa[i], FORMAT)
    return sums


@triton.jit
def add4(a0, a1, a2, a3, b0, b1, b2, b3):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit
def add8(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7


@triton.jit
def only(bits, slot, s):
    return tl.where(slot == s, bits, 0)


@triton.jit
def add_in_order(total, sums, C: tl.constexpr, PTX: tl.constexpr):
    """total [G, 16] plus the chunk sums [P = (G, C, 16)], chunk after chunk.

    The sums meet as bit patterns: a sum of integers of which one is not zero is that one, in any order. Several are
    summed at once, for the sake of barriers.
    """
    bits = tl.reshape(sums.to(tl.int32, bitcast=True), [total.shape[0], C, 16])
    slot = tl.arange(0, C)[None, :, None]
    if PTX and C == 4:
        four = only(bits, slot, 0), only(bits, slot, 1), only(bits, slot, 2), only(bits, slot, 3)
        parts = tl.reduce(four, 1, add4)
        for s in tl.static_range(4):
            total = total + parts[s].to(tl.float32, bitcast=True)
    elif PTX and C % 8 == 0:
        for first in tl.static_range(0, C, 8):
            b = bits
            f = first
            parts = tl.reduce(
                (
                    only(b, slot, f),
                    only(b, slot, f + 1),
                    only(b, slot, f + 2),
                    only(b, slot, f + 3),
                    only(b, slot, f + 4),
                    only(b, slot, f + 5),
                    only(b, slot, f + 6),
                    only(b, slot, f + 7),
                ),
                1,
                add8,
            )
            for s in tl.static_range(8):
                total = total + parts[s].to(tl.float32, bitcast=True)
    else:
        for s in tl.static_range(C):
            total = total + tl.sum(only(bits, slot, s), axis=1).to(tl.float32, bitcast=True)
    return total
