"""One token: chunk sums of a block-quantized product, a thread owns a row of a tile and a chunk of 8 blocks.

Every tensor is [P], one number a thread: P threads = (tile, chunk, row of 16), rows innermost, so that a warp reads
whole tiles and no layout but one exists.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.codes import ONES
from samebits.kernels.triton.lib.kinds import (
    has_fifth_bits,
    has_halves,
    has_offset,
    has_scaled_codes,
    has_sub_offset,
)
from samebits.kernels.triton.products.blocks.few.shared import read_words
from samebits.kernels.triton.products.blocks.terms import (
    BLOCK_MASK,
    NO_MASK,
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
    minimum_words,
    scaled_words,
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
def token_scales(sa_ptr, at, chunk, NB: tl.constexpr, MASK: tl.constexpr):
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
def load_block(planes, chunk, row, i, NB: tl.constexpr, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """Block i of a chunk of a tile, as stored, in one flat tuple: words of codes, high bits, scales."""
    keep = kept(chunk, i, NB, MASK)
    at = chunk * 128 + (row + i * 16)
    if FORMAT == "q8_0":
        at_codes = chunk * 1024 + (row * 4 + i * 128)
        words = load_words(planes[0], at_codes, keep, MASK) + load_words(planes[0], at_codes + 64, keep, MASK)
    else:
        words = load_words(planes[0], at * 4, keep, MASK)
    return words + high_bits(planes[1], at, keep, FORMAT, MASK) + load_scales(planes, at, keep, FORMAT, MASK)


@triton.jit
def load_chunk(planes, chunk, row, NB: tl.constexpr, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """Everything of a chunk: its eight blocks and what they share. All at once, so that many loads are on their way."""
    parts = ()
    for i in tl.static_range(8):
        parts = parts + load_block(planes, chunk, row, i, NB, FORMAT, MASK)
    return parts + load_chunk_scales(planes, 0, chunk, row, NB, FORMAT, MASK)


@triton.jit
def activation_scales(sa_ptr, shared, chunk, NB: tl.constexpr, MASK: tl.constexpr, SHARED: tl.constexpr):
    """The activations' scales of a chunk's 8 blocks; those beyond K are of no account."""
    if SHARED and MASK != BLOCK_MASK:
        at = shared + NB * 32 + tl.minimum(chunk, NB // 8 - 1) * 32
        words = read_words(at) + read_words(at + 16)
        scales = ()
        for i in tl.static_range(8):
            scales += (words[i].to(tl.float32, bitcast=True),)
        return scales
    else:
        return token_scales(sa_ptr, chunk * 8, chunk, NB, MASK)


@triton.jit
def activation_words(a_ptr, shared, chunk, i, NB: tl.constexpr, MASK: tl.constexpr, SHARED: tl.constexpr):
    """The codes of block i of a chunk, eight words; those beyond K are of no account."""
    if SHARED:
        at = shared + tl.minimum(chunk * 8 + i, NB - 1) * 32
        if MASK == NO_MASK:
            at = shared + chunk * 256 + i * 32
        return read_words(at), read_words(at + 16)
    else:
        keep, at = kept(chunk, i, NB, MASK), (chunk * 8 + i) * 8
        return load_words(a_ptr, at, keep, MASK), load_words(a_ptr, at + 4, keep, MASK)


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
            if has_scaled_codes(FORMAT):
                w_low, w_high = scaled_words(w_low, w_high, block[4].to(tl.int32))
            low = dp4a(w_low, a0[g], low, PTX)
            if has_halves(FORMAT):
                upper = dp4a(w_high, a1[g], upper, PTX)
            else:
                low = dp4a(w_high, a1[g], low, PTX)
    return sum_value(low, SHIFT), sum_value(upper, SHIFT)


@triton.jit
def code_sum(a0, a1, by0, by1, PTX: tl.constexpr):
    """float32: the sum of a block's activation codes, each times its byte of the word for its half."""
    total = sum_start(a0[0], 0)
    for g in tl.static_range(4):
        total = dp4a(a1[g], by1, dp4a(a0[g], by0, total, PTX), PTX)
    return sum_value(total, 0)


@triton.jit
def keep_order():
    """Keeps the compiler from putting loads off: memory is not touched across a barrier, were it only a warp's."""
    tl.inline_asm_elementwise("bar.warp.sync 0xffffffff; // $0", "=r", [], tl.int32, False, 1)


@triton.jit
def chunk_sums(
    parts,
    a_ptr,
    sa_ptr,
    shared,
    chunk,
    row,
    planes,
    next_chunk,
    scale,
    NEXT: tl.constexpr,
    NB: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    MASK: tl.constexpr,
    PTX: tl.constexpr,
    SHARED: tl.constexpr,
):
    """float32 [P]: the chain over the 8 blocks of a chunk that load_chunk gave, and the chunk that takes its place.

    a_ptr: the codes as words; shared: where they are in shared memory, with SHARED; scale: 0.5 * the tensor's, for
    nvfp4; planes, next_chunk: what takes its place, with NEXT. A block of that is asked for as soon as one is done, so
    that registers are few and memory is never idle.
    """
    words: tl.constexpr = 8 if FORMAT == "q8_0" else 4
    offset: tl.constexpr = has_offset(FORMAT) or has_sub_offset(FORMAT)
    scales_at: tl.constexpr = words + (1 if has_fifth_bits(FORMAT) else (2 if FORMAT == "q6_k" else 0))
    size: tl.constexpr = scales_at + (2 if offset else 1)
    d, m = chunk_scales(parts[8 * size :], scale, chunk, FORMAT)
    sa = activation_scales(sa_ptr, shared, chunk, NB, MASK, SHARED)
    sums = tl.zeros([chunk.shape[0]], tl.float32)
    following = ()
    for i in tl.static_range(8):
        block = parts[i * size : (i + 1) * size]
        a0, a1 = activation_words(a_ptr, shared, chunk, i, NB, MASK, SHARED)
        isum, hsum = integer_sums(block, a0, a1, FORMAT, SHIFT, PTX)
        asum = isum
        if offset:
            ones = tl.full(chunk.shape, ONES, tl.int32)
            asum = code_sum(a0, a1, ones, ones, PTX)
        elif has_scaled_codes(FORMAT):
            by0, by1 = minimum_words(block[scales_at].to(tl.int32))
            asum = code_sum(a0, a1, by0, by1, PTX)
        d, m, sub, msub = block_scales(block[scales_at:], d, m, FORMAT)
        sums = sums + block_term(isum, hsum, asum, d, m, sub, msub, sa[i], FORMAT)
        if NEXT:
            following = following + load_block(planes, next_chunk, row, i, NB, FORMAT, MASK)
            if PTX and i % 2 == 1:
                keep_order()
    if NEXT:
        following = following + load_chunk_scales(planes, 0, next_chunk, row, NB, FORMAT, MASK)
    return sums, following


@triton.jit
def only(bits, slot, s):
    return tl.where(slot == s, bits, 0)


@triton.jit
def add_in_order(total, sums, turn, C: tl.constexpr, ASM: tl.constexpr):
    """total [P = (C, 16)], the same in all C, plus the chunk sums [P], chunk after chunk.

    ASM: of exchange_asm, through shared memory, with two buffers by turns (0 or 1) so that one barrier is enough.
    Without it the sums meet as bit patterns: a sum of integers of which one is not zero is that one, in any order.
    """
    if ASM != "":
        thread = tl.arange(0, C * 16)
        own = (turn * (C * 16) + thread) * 4
        row = (turn * (C * 16) + thread % 16) * 4
        return tl.inline_asm_elementwise(ASM, "=f,f,f,r,r", [total, sums, own, row], tl.float32, False, 1)
    else:
        bits = tl.reshape(sums.to(tl.int32, bitcast=True), [C, 16])
        slot = tl.arange(0, C)[:, None]
        for s in tl.static_range(C):
            term = tl.sum(only(bits, slot, s), axis=0).to(tl.float32, bitcast=True)
            total = total + tl.reshape(tl.broadcast_to(term[None, :], [C, 16]), [C * 16])
        return total
