"""K pass of one-query attention over 16-bit caches: scores to scratch, and their maxima."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_QUERY, BAD_SCORE
from samebits.kernels.triton.attention.portable.work import decode_share, decode_tiles
from samebits.kernels.triton.attention.sequences import RUN, as_operand, in_range, page_of, sequences, settled_score
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import soft_capped
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.lib.rows import fault_where

# Adjacent pairs over neighbouring lanes: every lane ends with the whole tree.
_STEP = """
    shfl.sync.bfly.b32 t, $0, {mask}, 0x1f, 0xffffffff;
    add.rn.f32 $0, $0, t;"""
_PAIRS = "{{ .reg .f32 t; mov.f32 $0, $1; {steps} }}"
# Four trees at once: a lane hands on what its neighbour sums, so lane n ends with tree n % 4.
_FOUR = """{{
    .reg .f32 t, u, v, w;
    .reg .u32 lane, one, two;
    .reg .pred odd, high;
    mov.u32 lane, %laneid;
    and.b32 one, lane, 1;
    and.b32 two, lane, 2;
    setp.ne.u32 odd, one, 0;
    setp.ne.u32 high, two, 0;
    selp.f32 t, $1, $2, odd;
    selp.f32 u, $2, $1, odd;
    shfl.sync.bfly.b32 v, t, 1, 0x1f, 0xffffffff;
    add.rn.f32 u, u, v;
    selp.f32 t, $3, $4, odd;
    selp.f32 w, $4, $3, odd;
    shfl.sync.bfly.b32 v, t, 1, 0x1f, 0xffffffff;
    add.rn.f32 w, w, v;
    selp.f32 t, u, w, high;
    selp.f32 u, w, u, high;
    shfl.sync.bfly.b32 v, t, 2, 0x1f, 0xffffffff;
    add.rn.f32 $0, u, v;
    {steps}
}}"""
_LEVELS = {3: (1, 2, 4), 4: (1, 2, 4, 8), 5: (1, 2, 4, 8, 16)}
_ONE_BY_LEVELS = {n: _PAIRS.format(steps="".join(_STEP.format(mask=m) for m in ms)) for n, ms in _LEVELS.items()}
_FOUR_BY_LEVELS = {n: _FOUR.format(steps="".join(_STEP.format(mask=m) for m in ms[2:])) for n, ms in _LEVELS.items()}
ONE_3, ONE_4, ONE_5 = (tl.constexpr(_ONE_BY_LEVELS[n]) for n in (3, 4, 5))
FOUR_3, FOUR_4, FOUR_5 = (tl.constexpr(_FOUR_BY_LEVELS[n]) for n in (3, 4, 5))


@triton.jit
def split8(x):
    """[R, C * 8] to eight [R, C], in the order of the 8 consecutive columns."""
    rows: tl.constexpr = x.shape[0]
    cols: tl.constexpr = x.shape[1] // 8
    even, odd = tl.split(tl.reshape(x, [rows, cols * 4, 2]))
    e0, e1 = tl.split(tl.reshape(even, [rows, cols * 2, 2]))
    o0, o1 = tl.split(tl.reshape(odd, [rows, cols * 2, 2]))
    x0, x4 = tl.split(tl.reshape(e0, [rows, cols, 2]))
    x2, x6 = tl.split(tl.reshape(e1, [rows, cols, 2]))
    x1, x5 = tl.split(tl.reshape(o0, [rows, cols, 2]))
    x3, x7 = tl.split(tl.reshape(o1, [rows, cols, 2]))
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def pair_rows(x, LEVELS: tl.constexpr):
    """[R, 2 ** LEVELS] to [R]: adjacent pairs."""
    for _ in tl.static_range(LEVELS):
        left, right = tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))
        x = left + right
    return tl.reshape(x, [x.shape[0]])


@triton.jit
def tree_over_lanes(x, LEVELS: tl.constexpr, SHUFFLE: tl.constexpr):
    """[T, C] to its adjacent-pair row sums in every column; shuffles need the columns in neighbouring lanes."""
    if not SHUFFLE:
        return tl.zeros(x.shape, tl.float32) + pair_rows(x, LEVELS)[:, None]
    TEXT: tl.constexpr = ONE_3 if LEVELS == 3 else (ONE_4 if LEVELS == 4 else ONE_5)
    return tl.inline_asm_elementwise(TEXT, "=&f,f", [x], tl.float32, False, 1)


@triton.jit
def four_trees(a, b, c, d, lane, LEVELS: tl.constexpr, SHUFFLE: tl.constexpr):
    """Column n holds the row sums of a, b, c or d: of number n % 4."""
    if not SHUFFLE:
        low = tl.where(lane % 2 == 0, pair_rows(a, LEVELS)[:, None], pair_rows(b, LEVELS)[:, None])
        high = tl.where(lane % 2 == 0, pair_rows(c, LEVELS)[:, None], pair_rows(d, LEVELS)[:, None])
        return tl.where(lane % 4 < 2, low, high)
    TEXT: tl.constexpr = FOUR_3 if LEVELS == 3 else (FOUR_4 if LEVELS == 4 else FOUR_5)
    return tl.inline_asm_elementwise(TEXT, "=&f,f,f,f,f", [a, b, c, d], tl.float32, False, 1)


@triton.jit
def four_heads(k, q, FIRST: tl.constexpr, lane, LEVELS: tl.constexpr, SHUFFLE: tl.constexpr):
    a = eight_products(k, q[FIRST])
    b = eight_products(k, q[FIRST + 1])
    c = eight_products(k, q[FIRST + 2])
    d = eight_products(k, q[FIRST + 3])
    return four_trees(a, b, c, d, lane, LEVELS, SHUFFLE)


@triton.jit
def head_scores(k, q, lane, HEADS: tl.constexpr, LEVELS: tl.constexpr, SHUFFLE: tl.constexpr):
    """[T, C]: column n holds the score of head n < HEADS."""
    if HEADS % 4 == 0:
        s = four_heads(k, q, 0, lane, LEVELS, SHUFFLE)
        for g in tl.static_range(4, HEADS, 4):
            s = tl.where(lane >= g, four_heads(k, q, g, lane, LEVELS, SHUFFLE), s)
    else:
        s = tree_over_lanes(eight_products(k, q[0]), LEVELS, SHUFFLE)
        for g in tl.static_range(1, HEADS):
            s = tl.where(lane == g, tree_over_lanes(eight_products(k, q[g]), LEVELS, SHUFFLE), s)
    return s


@triton.jit
def opaque(x, SHUFFLE: tl.constexpr):
    """x, with its divisibility hidden from the compiler."""
    if not SHUFFLE:
        return x
    return tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r", [x], tl.int32, True, 1)


@triton.jit
def eight_products(k, q):
    low = tl.fma(k[3], q[3], tl.fma(k[2], q[2], tl.fma(k[1], q[1], tl.fma(k[0], q[0], 0.0))))
    return tl.fma(k[7], q[7], tl.fma(k[6], q[6], tl.fma(k[5], q[5], tl.fma(k[4], q[4], low))))


@triton.jit
def query_runs(q_ptr, lane, D: tl.constexpr, FORMAT: tl.constexpr, fault_ptr):
    """One head of the query as eight [1, C] operands, loaded one by one: small loads go to any layout for free."""
    q = ()
    bad = lane < 0
    for j in tl.static_range(8):
        x = tl.load(q_ptr + lane * 8 + j, mask=lane * 8 + j < D, other=0.0).to(tl.float32)
        x = as_operand(x, FORMAT)
        good = in_range(x, FORMAT)
        bad |= good == 0
        q += (tl.where(good, x, 0.0),)  # so that no key or value is blamed for it
    fault_where(fault_ptr, BAD_QUERY, bad)
    return q


@triton.jit
def score_tile(
    largest, wrong, q, k_ptr, s_ptr, slopes, indices_ptr, fault_ptr,
    entry, tile, last, low, length, k_page, num_pages, scale, cap, inv_cap,
    page_size: tl.constexpr, TABLE: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SLOPES: tl.constexpr,
    HEADS: tl.constexpr, H_PAD: tl.constexpr, K_SLOT: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    FORMAT: tl.constexpr, SHUFFLE: tl.constexpr,
):  # fmt: skip
    """One tile's scores to s [tile, 16, H_PAD]; (the largest so far, what is wrong so far)."""
    LEVELS: tl.constexpr = 3 if D_PAD == 64 else (4 if D_PAD == 128 else 5)
    d = tl.arange(0, D_PAD)[None, :]
    lane = tl.arange(0, D_PAD // 8)[None, :]
    within = tl.arange(0, RUN)
    page, slot, exists = page_of(indices_ptr, entry, tile * RUN, tile < last, page_size, num_pages, fault_ptr, TABLE)
    readable = within < tl.where(exists, length - tile * RUN, 0)
    if WINDOW:
        readable &= within >= low - tile * RUN
    at = page * k_page + (slot + within) * K_SLOT
    k = tl.load(k_ptr + at[:, None] + d, mask=readable[:, None] & (d < D), other=0.0)
    position = tile * RUN + within  # not what `readable` is made of: that would be kept from the load to here
    kept = position < length
    if WINDOW:
        kept &= position >= low
    score = head_scores(split8(k.to(tl.float32)), q, lane, HEADS, LEVELS, SHUFFLE)
    s = settled_score(score, FORMAT) * scale
    if CAP:
        s = soft_capped(s, cap, inv_cap)
    if SLOPES:
        s = s + slopes * (position - (length - 1)).to(tl.float32)[:, None]
    wrong |= kept[:, None] & (lane < HEADS) & ((s <= LARGEST_F32) == 0)
    s = tl.where(kept[:, None], s, NEG_INF)
    # A store that could be wider than one value a lane would pull the whole computation into its layout.
    to = opaque(position * H_PAD, SHUFFLE)[:, None] + lane
    tl.store(s_ptr + to, s, mask=kept[:, None] & (lane < HEADS))
    return tl.maximum(largest, s), wrong


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "num_tiles", "window"])
def decode_scores(
    q_ptr, k_ptr, s_ptr, max_ptr, qo_ptr, last_ptr, indptr_ptr, indices_ptr, slopes_ptr, fault_ptr,
    num_tokens, num_seqs, num_entries, num_pages, num_tiles, q_row, q_head, k_page, k_head,
    scale, cap, inv_cap, window,
    page_size: tl.constexpr, TABLE: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SLOPES: tl.constexpr,
    FORMAT: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, H_PAD: tl.constexpr, NUM_PARTS: tl.constexpr,
    K_SLOT: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, SEQ_BLOCK: tl.constexpr, STAGES: tl.constexpr,
    SHUFFLE: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """s [part, tile, 16, H_PAD], and in max the largest of every stretch; a part is HEADS query heads of one KV head.

    A program's share of tiles is one stretch for each sequence and part in it; program p's stretch of sequence b and
    part h is number p + b * NUM_PARTS + h, so those of one b and h follow each other.
    C lanes share a token, each sums a run of 8; shuffles are the tree, so lane g ends with the score of head g.
    """
    LANES: tl.constexpr = D_PAD // 8
    lane = tl.arange(0, LANES)[None, :]
    heads = tl.arange(0, LANES)
    at, stop, seq, base, _, _ = decode_share(
        qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries, num_tokens, page_size, window, fault_ptr,
        NUM_PARTS, False, TABLE, WINDOW, SEQ_BLOCK,
    )  # fmt: skip
    while at < stop:
        row, rows, entry, length = sequences(
            seq, True, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        first, tiles = decode_tiles(rows, length, window, WINDOW)
        if at - base >= tiles * NUM_PARTS:
            base += tiles * NUM_PARTS
            seq += 1
        else:
            part = (at - base) // tiles
            first += (at - base) % tiles
            last = tl.minimum(first + (stop - at), tl.cdiv(length, RUN))
            # So the first look at the table, in the loop, finds it near.
            page_of(indices_ptr, entry, first * RUN, first < last, page_size, num_pages, fault_ptr, TABLE)
            wait_for_previous(CHAINED)
            q = ()
            for g in tl.static_range(HEADS):
                q_base = q_ptr + row.to(tl.int64) * q_row + (part * HEADS + g).to(tl.int64) * q_head
                q += (query_runs(q_base, lane, D, FORMAT, fault_ptr),)
            slopes = lane
            if SLOPES:
                slopes = tl.load(slopes_ptr + part * HEADS + lane, mask=lane < HEADS, other=0.0)
            first_tile = part.to(tl.int64) * num_tiles + entry.to(tl.int64) * page_size // RUN + seq
            s_base = s_ptr + first_tile * (RUN * H_PAD)
            k_base = k_ptr + (part * HEADS // GROUP).to(tl.int64) * k_head
            low = 0
            if WINDOW:
                low = length - 1 - window
            largest = tl.full([RUN, LANES], NEG_INF, tl.float32)
            wrong = tl.zeros([RUN, LANES], tl.int1)
            if EMULATE:  # the interpreter's `range` takes no bounds from memory
                tile = first
                while tile < last:
                    largest, wrong = score_tile(
                        largest, wrong, q, k_base, s_base, slopes, indices_ptr, fault_ptr,
                        entry, tile, last, low, length, k_page, num_pages, scale, cap, inv_cap,
                        page_size, TABLE, WINDOW, CAP, SLOPES, HEADS, H_PAD, K_SLOT, D, D_PAD, FORMAT, SHUFFLE,
                    )  # fmt: skip
                    tile += 1
            else:
                for tile in tl.range(first, last, num_stages=STAGES):
                    largest, wrong = score_tile(
                        largest, wrong, q, k_base, s_base, slopes, indices_ptr, fault_ptr,
                        entry, tile, last, low, length, k_page, num_pages, scale, cap, inv_cap,
                        page_size, TABLE, WINDOW, CAP, SLOPES, HEADS, H_PAD, K_SLOT, D, D_PAD, FORMAT, SHUFFLE,
                    )  # fmt: skip
            fault_where(fault_ptr, BAD_SCORE, wrong)
            stretch = tl.program_id(0) + seq.to(tl.int64) * NUM_PARTS + part
            tl.store(max_ptr + stretch * HEADS + heads, tl.max(largest, axis=0), mask=heads < HEADS)
            at += last - first
    if tl.program_id(0) == 0:  # so the grid ends after the one before it, also where nothing was to do
        wait_for_previous(CHAINED)
