"""Block-quantized matrix products by the int8 matrix instruction of a warp, in the arithmetic of docs/numerics.md.

Tensors here have one element per thread, so that a tuple of them is a thread's registers and the operands of
mma.sync.m16n8k32 lie where that instruction wants them without any exchange: lane 4g + t of a warp holds words t of
rows g and g + 8 of the weight, words t of token g, and the sums of rows g, g + 8 and tokens 2t, 2t + 1. A tile of 16
rows of lib/weights.py and a tile of 8 tokens as activations.py arranges them are stored in that very order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.kinds import has_halves, is_super
from samebits.kernels.triton.products.blocks.many.results import store_totals
from samebits.kernels.triton.products.blocks.many.terms import OFFSET, SUPER, add_terms
from samebits.kernels.triton.products.blocks.many.tiles import (
    at_block,
    fragment,
    load_block,
    load_shared,
    row_scales,
    tile_pointers,
)
from samebits.kernels.triton.products.blocks.many.words import pair


@triton.jit
def _float_pair(both):
    low, high = pair(both)
    return low.to(tl.float32, bitcast=True), high.to(tl.float32, bitcast=True)


@triton.jit
def _prefetch(ptr, EMULATE: tl.constexpr):
    """Asks for the line at ptr; nothing depends on it."""
    if not EMULATE:
        tl.inline_asm_elementwise("prefetch.global.L1 [$1]; mov.b32 $0, 0;", "=r,l", [ptr], tl.int32, False, 1)


@triton.jit
def _lines(acts, planes, first_tile, last_tile, nb, lane, FORMAT: tl.constexpr, MT: tl.constexpr, NT: tl.constexpr):
    """(where, bytes from a block to the next): a line of 128 bytes for each lane, all that a warp reads of block 0."""
    CODES: tl.constexpr = MT * (4 if FORMAT == "q8_0" else 2)
    SCALES: tl.constexpr = (NT + 3) // 4
    BYTE: tl.constexpr = tl.pointer_type(tl.int8)
    word = lane - CODES
    scale = word - 2 * NT
    tile = tl.where(lane < CODES, lane // (CODES // MT), scale - SCALES)
    tile = tl.minimum(first_tile + tl.maximum(tile, 0) % MT, last_tile).to(tl.int64) * nb
    where = planes[0].to(BYTE) + tile * (128 * (CODES // MT)) + lane % (CODES // MT) * 128
    where = tl.where(word < 0, where, acts[0].to(BYTE) + word * 128)
    where = tl.where(scale < 0, where, acts[1].to(BYTE) + scale * 128)
    step = tl.where(word < 0, 128 * (CODES // MT), tl.where(scale < 0, NT * 256, NT * 32))
    if FORMAT == "mxfp4":
        where = tl.where(scale < SCALES, where, planes[2].to(BYTE) + tile * 16)
        step = tl.where(scale < SCALES, step, 16)
    elif not is_super(FORMAT) and not has_halves(FORMAT):
        where = tl.where(scale < SCALES, where, planes[2].to(BYTE) + tile * 32)
        step = tl.where(scale < SCALES, step, 32)
    else:
        where = tl.where(scale < SCALES, where, acts[1].to(BYTE))
    return where, step.to(tl.int64)


@triton.jit
def _load_rows(tiles, b, nb, J: tl.constexpr, FORMAT: tl.constexpr, TAIL: tl.constexpr, MT: tl.constexpr):
    """Block b + J of MT tiles as stored; the last block where that is beyond it."""
    rows = ()
    for i in tl.static_range(MT):
        if TAIL:
            rows += (load_block(at_block(tiles[i], tl.minimum(b + J, nb - 1), FORMAT), 0, FORMAT),)
        else:
            rows += (load_block(at_block(tiles[i], b, FORMAT), J, FORMAT),)
    return rows


@triton.jit
def _load_tokens(acts, b, nb, J: tl.constexpr, KIND: tl.constexpr, TAIL: tl.constexpr, NT: tl.constexpr):
    """Block b + J of NT tiles of tokens: words, scales, sums, each int64 pairs."""
    if TAIL:
        b = tl.minimum(b + J, nb - 1) - J
    words_ptr, sa_ptr, asum_ptr = acts[0] + b * (NT * 32), acts[1] + b * (NT * 4), acts[2] + b * (NT * 4)
    tokens = ()
    for n in tl.static_range(NT):
        words, sa = tl.load(words_ptr + (J * NT + n) * 32), tl.load(sa_ptr + (J * NT + n) * 4)
        asum = sa
        if (KIND == OFFSET) | (KIND == SUPER):
            asum = tl.load(asum_ptr + (J * NT + n) * 4)
        tokens += ((words, sa, asum),)
    return tokens


@triton.jit
def _add_block(
    parts,
    rows,
    tokens,
    shared,
    scale,
    t,
    FORMAT: tl.constexpr,
    KIND: tl.constexpr,
    MT: tl.constexpr,
    NT: tl.constexpr,
    WARPS: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """parts, four sums a pair of row tile and token tile, plus the terms of a block."""
    added = ()
    for i in tl.static_range(MT):
        words, high, scales = rows[i]
        a = fragment(words, high, scales, t, FORMAT)
        d, m, sub, second = row_scales(scales, shared[i], scale, FORMAT)
        for n in tl.static_range(NT):
            b, sa, asum = pair(tokens[n][0]), _float_pair(tokens[n][1]), _float_pair(tokens[n][2])
            part = parts[i * NT + n]
            added += (add_terms(part, a, b, sa, asum, d, m, sub, second, FORMAT, KIND, WARPS, EMULATE),)
    return added


@triton.jit
def _zeros(COUNT: tl.constexpr, WARPS: tl.constexpr):
    zeros = ()
    for _ in tl.static_range(COUNT):
        zero = tl.zeros([32 * WARPS], tl.float32)
        zeros += ((zero, zero, zero, zero),)
    return zeros


@triton.jit
def _plus(totals, parts, COUNT: tl.constexpr):
    added = ()
    for k in tl.static_range(COUNT):
        t0, t1, t2, t3 = totals[k]
        p0, p1, p2, p3 = parts[k]
        added += ((t0 + p0, t1 + p1, t2 + p2, t3 + p3),)
    return added


@triton.jit
def _kept(parts, condition, COUNT: tl.constexpr):
    """parts, or +0 where the condition does not hold."""
    kept = ()
    for k in tl.static_range(COUNT):
        p0, p1, p2, p3 = parts[k]
        p0, p1 = tl.where(condition, p0, 0.0), tl.where(condition, p1, 0.0)
        p2, p3 = tl.where(condition, p2, 0.0), tl.where(condition, p3, 0.0)
        kept += ((p0, p1, p2, p3),)
    return kept


@triton.jit
def _joined(level, COUNT: tl.constexpr):
    """A tuple of COUNT tensors [threads] as one [threads, 2, .. 2], in order; COUNT is a power of two."""
    if COUNT == 1:
        return level[0]
    else:
        pairs = ()
        for k in tl.static_range(COUNT // 2):
            pairs += (tl.join(level[k], level[k + COUNT // 2]),)
        return _joined(pairs, COUNT // 2)


@triton.jit
def _plus_chunks(totals, parts, GROUPS: tl.constexpr, COUNT: tl.constexpr):
    """totals [threads of a group, 4 * COUNT] plus the chunks that GROUPS groups of warps hold, in order."""
    flat = ()
    for k in tl.static_range(COUNT):
        flat += (parts[k][0], parts[k][1], parts[k][2], parts[k][3])
    threads: tl.constexpr = totals.shape[0]
    chunks = tl.reshape(_joined(flat, 4 * COUNT), [GROUPS, threads, 4 * COUNT])
    chunks = tl.permute(chunks, (1, 2, 0))
    if GROUPS == 2:
        first, second = tl.split(chunks)
        return (totals + first) + second
    else:
        even, odd = tl.split(tl.reshape(chunks, [threads, 4 * COUNT, 2, 2]))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        return (((totals + first) + second) + third) + fourth


@triton.jit
def program_tiles(token_tiles, row_groups):
    """(row group, token tile): tokens first, in bands of 16 tiles, so that programs at work share weights."""
    program = tl.program_id(0)
    band = program // (16 * row_groups)
    width = tl.minimum(token_tiles - band * 16, 16)
    program -= band * (16 * row_groups)
    return program // width, band * 16 + program % width


@triton.jit
def tile_totals(
    acts,
    planes,
    first_tile,
    last_tile,
    scale,
    nb,
    FORMAT: tl.constexpr,
    KIND: tl.constexpr,
    MT: tl.constexpr,
    NT: tl.constexpr,
    WARPS: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS_AHEAD: tl.constexpr,
    TOKENS_AHEAD: tl.constexpr,
    LINES_AHEAD: tl.constexpr,
    TAIL: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """The sums of 16 * MT rows and 8 * NT tokens a warp: MT * NT tuples of four, or with GROUPS one tensor.

    acts: pointers to a tile of arranged tokens; first_tile, last_tile: a warp's first tile of rows, and the weight's
    last. GROUPS of WARPS warps own the same rows and take chunks in turn; their sums meet in order after every turn.
    """
    ALL: tl.constexpr = WARPS * GROUPS
    COUNT: tl.constexpr = MT * NT
    thread = tl.arange(0, 32 * ALL)
    lane, group = thread % 32, thread // (32 * WARPS)
    t = lane % 4
    tiles = ()
    for i in tl.static_range(MT):
        tiles += (tile_pointers(planes, tl.minimum(first_tile + i, last_tile).to(tl.int64), nb, lane, FORMAT),)
    line, step = _lines(acts, planes, first_tile, last_tile, nb, lane, FORMAT, MT, NT)
    acts = (acts[0] + lane, acts[1] + t, acts[2] + t)
    totals = _zeros(COUNT, ALL) if GROUPS == 1 else tl.zeros([32 * WARPS, 4 * COUNT], tl.float32)
    last = tl.maximum(nb - 8, 0)
    first = tl.minimum(group * 8, last)
    rows, tokens = (), ()
    for j in tl.static_range(ROWS_AHEAD):
        rows += (_load_rows(tiles, first, nb, j, FORMAT, TAIL, MT),)
    for j in tl.static_range(TOKENS_AHEAD):
        tokens += (_load_tokens(acts, first, nb, j, KIND, TAIL, NT),)
    turn = 0
    while turn < nb:
        b = turn
        following = turn + 8
        if GROUPS > 1:
            b = tl.minimum(turn + group * 8, last)
            following = turn + (GROUPS + group) * 8
        if not TAIL:
            following = tl.minimum(following, last)
        shared = ()
        for i in tl.static_range(MT):
            shared += (load_shared(at_block(tiles[i], b, FORMAT), FORMAT),)
        here, there = line + step * b, line + step * tl.minimum(following, last)
        parts = _zeros(COUNT, ALL)
        for j in tl.static_range(8):
            if LINES_AHEAD:
                if j + LINES_AHEAD < 8:
                    _prefetch(here + step * (j + LINES_AHEAD), EMULATE)
                else:
                    _prefetch(there + step * (j + LINES_AHEAD - 8), EMULATE)
            if j + TOKENS_AHEAD < 8:
                tokens += (_load_tokens(acts, b, nb, j + TOKENS_AHEAD, KIND, TAIL, NT),)
            else:
                tokens += (_load_tokens(acts, following, nb, j + TOKENS_AHEAD - 8, KIND, TAIL, NT),)
            if j + ROWS_AHEAD < 8:
                rows += (_load_rows(tiles, b, nb, j + ROWS_AHEAD, FORMAT, TAIL, MT),)
            else:
                rows += (_load_rows(tiles, following, nb, j + ROWS_AHEAD - 8, FORMAT, TAIL, MT),)
            if TAIL:
                if b + j < nb:
                    parts = _add_block(parts, rows[0], tokens[0], shared, scale, t, FORMAT, KIND, MT, NT, ALL, EMULATE)
            else:
                parts = _add_block(parts, rows[0], tokens[0], shared, scale, t, FORMAT, KIND, MT, NT, ALL, EMULATE)
            rows, tokens = rows[1:], tokens[1:]
        if GROUPS == 1:
            totals = _plus(totals, parts, COUNT)
        else:
            totals = _plus_chunks(totals, _kept(parts, turn + group * 8 < nb, COUNT), GROUPS, COUNT)
        turn += 8 * GROUPS
    return totals


@triton.jit
def at_token_tile(words_ptr, sa_ptr, asum_ptr, token_tile, nb, NT: tl.constexpr):
    """Pointers to the words, scales and sums of a tile of tokens."""
    some_tile = token_tile * nb
    return words_ptr + some_tile * (NT * 32), sa_ptr + some_tile * (NT * 4), asum_ptr + some_tile * (NT * 4)


@triton.jit(do_not_specialize=["T", "N", "nb"])
def gemm_warps(
    words_ptr,
    sa_ptr,
    asum_ptr,
    codes_ptr,
    high_ptr,
    d_ptr,
    m_ptr,
    sub_ptr,
    msub_ptr,
    bias_ptr,
    y_ptr,
    scale,
    T,
    N,
    nb,
    FORMAT: tl.constexpr,
    KIND: tl.constexpr,
    MT: tl.constexpr,
    NT: tl.constexpr,
    WARPS: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS_AHEAD: tl.constexpr,
    TOKENS_AHEAD: tl.constexpr,
    LINES_AHEAD: tl.constexpr,
    TAIL: tl.constexpr,
    BIAS: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """y [T, N]: a warp owns 16 * MT rows and 8 * NT tokens; scale: half of nvfp4's."""
    row_group, token_tile = program_tiles(tl.cdiv(T, 8 * NT), tl.cdiv(N, 16 * MT * WARPS))
    token_tile = token_tile.to(tl.int64)
    acts = at_token_tile(words_ptr, sa_ptr, asum_ptr, token_tile, nb, NT)
    planes = (codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr)
    warp = tl.arange(0, 32 * WARPS * GROUPS) // 32 % WARPS
    totals = tile_totals(
        acts, planes, (row_group * WARPS + warp) * MT, (N + 15) // 16 - 1, scale, nb, FORMAT, KIND, MT, NT,
        WARPS, GROUPS, ROWS_AHEAD, TOKENS_AHEAD, LINES_AHEAD, TAIL, EMULATE,
    )  # fmt: skip
    store_totals(
        totals, bias_ptr, y_ptr, row_group, token_tile, T, N, y_ptr, MT, NT, WARPS, GROUPS, BIAS, False
    )  # fmt: skip
