"""Two to eight tokens on NVIDIA: chunk sums of a block-quantized product by its int8 tensor instruction, or by plain
arithmetic in the interpreter.

A warp owns a tile of 16 rows and a chunk; one instruction takes a block of 32 for 8 tokens. Every tensor is [P], one
number a thread, so lane l of a warp holds what the instruction wants of it: rows l / 4 and 8 + l / 4 of the tile, words
l % 4 and 4 + l % 4 of token l / 4, and the results of those rows for tokens 2 (l % 4) and the next.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.codes import ONES
from samebits.kernels.triton.lib.kinds import (
    has_fifth_bits,
    has_halves,
    has_offset,
    has_scaled_codes,
    has_sub_offset,
)
from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.products.blocks.few.chunks import token_scales
from samebits.kernels.triton.products.blocks.terms import (
    FOUR_WORDS,
    block_scales,
    block_term,
    chunk_scales,
    code_words,
    high_bits,
    kept,
    load_chunk_scales,
    load_each,
    load_scales,
    minimum_words,
    scaled_words,
    sum_start,
    sum_value,
    word_sums,
)

MMA_32 = tl.constexpr(
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$10,$10,$10};"
)
MMA_16 = tl.constexpr("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, {$4,$5}, {$6}, {$7,$7,$7,$7};")


@triton.jit
def mma(a0, a1, a2, a3, b0, b1, start):
    """Four sums of 32 products: of the rows a0, a1 (first half of the block) and a2, a3 (second half)."""
    if EMULATE:
        s0, s1, s2, s3 = mma_half(a0, a1, b0, start)
        h0, h1, h2, h3 = mma_half(a2, a3, b1, start * 0)
        return s0 + h0, s1 + h1, s2 + h2, s3 + h3
    return tl.inline_asm_elementwise(
        MMA_32, "=r,=r,=r,=r,r,r,r,r,r,r,r", [a0, a1, a2, a3, b0, b1, start], FOUR_WORDS, False, 1
    )


@triton.jit
def mma_half(a0, a1, b, start):
    """Four sums of 16 products."""
    if EMULATE:
        s0, s1 = word_sums(a0, b)
        s2, s3 = word_sums(a1, b)
        return start + s0, start + s1, start + s2, start + s3
    return tl.inline_asm_elementwise(MMA_16, "=r,=r,=r,=r,r,r,r,r", [a0, a1, b, start], FOUR_WORDS, False, 1)


@triton.jit
def lane_words(w, high, word, FORMAT: tl.constexpr):
    """code_words for a word that differs between lanes: high bits are shifted so that those of word 0 stand right."""
    if has_fifth_bits(FORMAT):
        high = (high[0] >> word,)
    elif FORMAT == "q6_k":
        high = high[0] >> (word * 2), high[1] >> (word * 2)
    return code_words(w, high, 0, FORMAT, not EMULATE)


@triton.jit
def load_row(planes, at_chunk, row, word, i, keep, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """A lane's part of a row of block i, as stored: (words of codes: two of q8_0), (high bits), (scales)."""
    at = at_chunk * 16 + (row + i * 16)
    high = high_bits(planes[1], at, keep, FORMAT, MASK)
    scales = load_scales(planes, at, keep, FORMAT, MASK)
    if FORMAT == "q8_0":
        at_codes = at_chunk * 128 + (row * 4 + word + i * 128)
        words = load_each(planes[0], at_codes, keep, MASK), load_each(planes[0], at_codes + 64, keep, MASK)
        return words, high, scales
    else:
        return (load_each(planes[0], at * 4 + word, keep, MASK),), high, scales


@triton.jit
def tile_sums(top, bottom, word, b0, b1, FORMAT: tl.constexpr, SHIFT: tl.constexpr):
    """Sums of the halves of a block, four each; all of it in the first where the format needs no more."""
    start = sum_start(word, SHIFT)
    if FORMAT == "q8_0":
        sums = mma(top[0][0], bottom[0][0], top[0][1], bottom[0][1], b0, b1, start)
        return sums, sums
    else:
        top0, top1 = lane_words(top[0][0], top[1], word, FORMAT)
        bottom0, bottom1 = lane_words(bottom[0][0], bottom[1], word, FORMAT)
        if has_scaled_codes(FORMAT):
            top0, top1 = scaled_words(top0, top1, top[2][0].to(tl.int32))
            bottom0, bottom1 = scaled_words(bottom0, bottom1, bottom[2][0].to(tl.int32))
        if has_halves(FORMAT):
            return mma_half(top0, bottom0, b0, start), mma_half(top1, bottom1, b1, start)
        else:
            sums = mma(top0, bottom0, top1, bottom1, b0, b1, start)
            return sums, sums


@triton.jit
def row_terms(
    sums, isums, hsums, asums, scales, d, m, sa0, sa1, AT: tl.constexpr, FORMAT: tl.constexpr, SHIFT: tl.constexpr
):
    """The chains of a row for two tokens, AT and AT + 1 of the four, one term on."""
    d, m, sub, msub = block_scales(scales, d, m, FORMAT)
    i0, i1 = sum_value(isums[AT], SHIFT), sum_value(isums[AT + 1], SHIFT)
    h0, h1 = sum_value(hsums[AT], SHIFT), sum_value(hsums[AT + 1], SHIFT)
    first = sums[AT] + block_term(i0, h0, asums[0], d, m, sub, msub, sa0, FORMAT)
    return first, sums[AT + 1] + block_term(i1, h1, asums[1], d, m, sub, msub, sa1, FORMAT)


@triton.jit
def code_sums(top, bottom, b0, b1, FORMAT: tl.constexpr):
    """What offsets are multiplied by: per row, sums of the codes of a lane's two tokens, times minimums of q2_k."""
    if has_scaled_codes(FORMAT):
        top0, top1 = minimum_words(top[2][0].to(tl.int32))
        bottom0, bottom1 = minimum_words(bottom[2][0].to(tl.int32))
    else:
        ones = tl.full(b0.shape, ONES, tl.int32)
        top0, top1, bottom0, bottom1 = ones, ones, ones, ones
    s0, s1, s2, s3 = mma(top0, bottom0, top1, bottom1, b0, b1, sum_start(b0, 0))
    return (sum_value(s0, 0), sum_value(s1, 0)), (sum_value(s2, 0), sum_value(s3, 0))


@triton.jit
def load_tile(planes, tile, chunk, lane, NB: tl.constexpr, FORMAT: tl.constexpr, MASK: tl.constexpr):
    """A lane's part of a chunk, as stored: eight rows l / 4, eight rows 8 + l / 4, what the blocks of each share."""
    row, word = lane // 4, lane % 4
    tops, bottoms = (), ()
    for i in tl.static_range(8):
        keep = kept(chunk, i, NB, MASK)
        tops += (load_row(planes, tile * NB + chunk * 8, row, word, i, keep, FORMAT, MASK),)
        bottoms += (load_row(planes, tile * NB + chunk * 8, row + 8, word, i, keep, FORMAT, MASK),)
    top = load_chunk_scales(planes, tile, chunk, row, NB, FORMAT, MASK)
    return tops, bottoms, top, load_chunk_scales(planes, tile, chunk, row + 8, NB, FORMAT, MASK)


@triton.jit
def chunk_sums_mma(
    parts,
    a_ptr,
    sa_ptr,
    chunk,
    lane,
    tokens,
    scale,
    NB: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    MASK: tl.constexpr,
):
    """Four float32 [P]: the chains over the 8 blocks of a chunk; rows l / 4 twice, then rows 8 + l / 4."""
    word = lane % 4
    tops, bottoms, shared0, shared1 = parts
    d0, m0 = chunk_scales(shared0, scale, lane, FORMAT)
    d1, m1 = chunk_scales(shared1, scale, lane, FORMAT)
    own = tl.minimum(lane // 4, tokens - 1) * NB + chunk * 8
    first, second = tl.minimum(word * 2, tokens - 1) * NB, tl.minimum(word * 2 + 1, tokens - 1) * NB
    sa0 = token_scales(sa_ptr, first + chunk * 8, chunk, NB, MASK)
    sa1 = token_scales(sa_ptr, second + chunk * 8, chunk, NB, MASK)
    zero = tl.zeros([lane.shape[0]], tl.float32)
    sums = (zero, zero, zero, zero)
    for i in tl.static_range(8):
        keep = kept(chunk, i, NB, MASK)
        b0 = load_each(a_ptr, (own + i) * 8 + word, keep, MASK)
        b1 = load_each(a_ptr, (own + i) * 8 + word + 4, keep, MASK)
        isums, hsums = tile_sums(tops[i], bottoms[i], word, b0, b1, FORMAT, SHIFT)
        asums = ((zero, zero), (zero, zero))
        if has_offset(FORMAT) or has_sub_offset(FORMAT) or has_scaled_codes(FORMAT):
            asums = code_sums(tops[i], bottoms[i], b0, b1, FORMAT)
        top = row_terms(sums, isums, hsums, asums[0], tops[i][2], d0, m0, sa0[i], sa1[i], 0, FORMAT, SHIFT)
        bottom = row_terms(sums, isums, hsums, asums[1], bottoms[i][2], d1, m1, sa0[i], sa1[i], 2, FORMAT, SHIFT)
        sums = top + bottom
    return sums


@triton.jit
def store_sums(ptr, sums, lane, tokens):
    """Four sums of a lane to [16 rows][tokens] at ptr [P]."""
    first, second = lane % 4 * 2 < tokens, lane % 4 * 2 + 1 < tokens
    at = (lane // 4) * tokens + lane % 4 * 2
    tl.store(ptr + at, sums[0], mask=first)
    tl.store(ptr + at + 1, sums[1], mask=second)
    tl.store(ptr + at + 8 * tokens, sums[2], mask=first)
    tl.store(ptr + at + 8 * tokens + 1, sums[3], mask=second)


@triton.jit
def tile_rows(
    parts_ptr,
    planes,
    a_ptr,
    sa_ptr,
    tokens,
    scale,
    NB: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    C: tl.constexpr,
    MASK: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """float32 [128], result r + 16 t is row r of the tile for token t; C warps share the tile's chunks.

    The chunk sums go through parts [chunks][16][tokens] in memory and are added in order from +0.
    """
    thread = tl.arange(0, 32 * C)
    lane, chunk = thread % 32, thread // 32
    chunks: tl.constexpr = (NB + 7) // 8
    stored = load_tile(planes, 0, chunk, lane, NB, FORMAT, MASK)
    tl.debug_barrier()  # the compiler would put these loads off
    wait_for_previous(CHAINED)
    for _ in tl.range(C, chunks, C):
        sums = chunk_sums_mma(stored, a_ptr, sa_ptr, chunk, lane, tokens, scale, NB, FORMAT, SHIFT, MASK)
        store_sums(parts_ptr + chunk * (16 * tokens), sums, lane, tokens)
        chunk += C
        stored = load_tile(planes, 0, chunk, lane, NB, FORMAT, MASK)
        tl.debug_barrier()
    sums = chunk_sums_mma(stored, a_ptr, sa_ptr, chunk, lane, tokens, scale, NB, FORMAT, SHIFT, MASK)
    store_sums(parts_ptr + chunk * (16 * tokens), sums, lane, tl.where(chunk < chunks, tokens, 0))
    tl.debug_barrier()
    result = tl.arange(0, 128)
    row, token = result % 16, result // 16
    total = tl.zeros([128], tl.float32)
    for part in tl.static_range(chunks):
        total = total + tl.load(parts_ptr + (part * 16 + row) * tokens + token, mask=token < tokens, other=0)
    return total
