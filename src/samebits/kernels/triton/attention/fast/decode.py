"""Attention of sequences with few queries: a fixed number of programs share all cached blocks evenly.

Every (sequence, tile of rows, KV head) is an item of as many units as it has blocks of BLOCK_N positions. Units are
numbered over all items, and program p takes units p * share .. (p + 1) * share - 1, so an item may be cut anywhere.
A cut item's parts go to scratch; the program that arrives last adds them up in the order of positions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.fast.tile import batch_of, load_queries, sequence_at, store_rows, walk
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.limits import NEG_INF


@triton.jit
def check_pages(page, at, used, kv_indices, num_pages, fault, code, CHUNK: tl.constexpr):
    """A fault where the table names a page that does not exist; programs share the table, `page` is at `at`."""
    while at < used:
        entry = at + tl.arange(0, CHUNK)
        wrong = ((page < 0) | (page >= num_pages)) & (entry < used)
        tl.store(fault + tl.zeros_like(entry), code, mask=wrong)
        at += tl.num_programs(0) * CHUNK
        page = tl.load(kv_indices + at + tl.arange(0, CHUNK), mask=at + tl.arange(0, CHUNK) < used, other=0)


@triton.jit
def clear_padding(used, num_tokens, out, lse, D: tl.constexpr, HEADS: tl.constexpr, HAS_LSE: tl.constexpr):
    """Zeros and -Inf in the token rows from `used` on, after the last sequence's."""
    token = tl.maximum(used, 0) + tl.program_id(0)
    while token < num_tokens:
        start = token.to(tl.int64) * HEADS
        for at in range(0, HEADS * D, 1024):
            i = at + tl.arange(0, 1024)
            tl.store(out + start * D + i, tl.zeros([1024], out.dtype.element_ty), mask=i < HEADS * D)
        if HAS_LSE:
            for at in range(0, HEADS, 128):
                i = at + tl.arange(0, 128)
                tl.store(lse + start + i, tl.full([128], NEG_INF, tl.float32), mask=i < HEADS)
        token += tl.num_programs(0)


@triton.jit
def add_parts(part_o, part_ml, low, high, i, inside, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, PARTS: tl.constexpr):
    """Rows i of an item's parts from programs low .. high: the first one's second slot, the others' first slots."""
    d = tl.arange(0, BLOCK_D)
    acc = tl.zeros([i.shape[0], BLOCK_D], tl.float32)
    m = tl.full([i.shape[0]], NEG_INF, tl.float32)
    total = tl.zeros([i.shape[0]], tl.float32)
    at = low
    while at <= high:
        p = at + tl.arange(0, PARTS)
        row = ((2 * p + tl.where(p == low, 1, 0)) * BLOCK_M)[:, None] + i[None, :]
        there = (p <= high)[:, None] & inside[None, :]
        part_m = tl.load(part_ml + 2 * row, mask=there, other=NEG_INF, cache_modifier=".cg")
        part_sum = tl.load(part_ml + 2 * row + 1, mask=there, other=0.0, cache_modifier=".cg")
        where = part_o + row[:, :, None] * BLOCK_D + d[None, None, :]
        part = tl.load(where, mask=there[:, :, None], other=0.0, cache_modifier=".cg")
        m_new = tl.maximum(m, tl.max(part_m, 0))
        shift = tl.where(m_new == NEG_INF, 0.0, m_new)
        alpha, beta = tl.exp2(m - shift), tl.exp2(part_m - shift[None, :])
        total = total * alpha + tl.sum(part_sum * beta, 0)
        acc = acc * alpha[:, None] + tl.sum(part * beta[:, :, None], 0)
        m = m_new
        at += PARTS
    return acc, m, total


@triton.jit
def merge_rows(
    first_row, num_rows, low, high, part_o, part_ml, first, head, out, lse, sinks,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr,
    HAS_SINKS: tl.constexpr, HAS_LSE: tl.constexpr, MERGED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Results of a cut item from all its parts, MERGED rows at a time: often few of BLOCK_M are in use."""
    done = tl.zeros_like(num_rows)
    while (done < BLOCK_M) & (first_row + done < num_rows):
        i = done + tl.arange(0, MERGED)
        row = first_row + i
        acc, m, total = add_parts(part_o, part_ml, low, high, i, row < num_rows, BLOCK_M, BLOCK_D, PARTS)
        store_rows(
            acc, m, total, row, num_rows, first, head, out, lse, sinks, D, BLOCK_D, HEADS, GROUP, HAS_SINKS, HAS_LSE
        )
        done += MERGED


@triton.jit
def store_part(acc, m, total, inside, slot, part_o, part_ml, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr):
    """One part of a cut item, seen by the other programs once this one is counted."""
    row = slot * BLOCK_M + tl.arange(0, BLOCK_M)
    tl.store(part_o + row[:, None] * BLOCK_D + tl.arange(0, BLOCK_D)[None, :], acc, mask=inside[:, None])
    tl.store(part_ml + 2 * row, m, mask=inside)
    tl.store(part_ml + 2 * row + 1, total, mask=inside)
    tl.debug_barrier()  # all threads have stored


@triton.jit
def store_item(
    acc, m, total, first_row, num_rows, first_unit, blocks, share, is_whole, first, head, out, lse, sinks,
    part_o, part_ml, counters, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, HEADS: tl.constexpr,
    GROUP: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_LSE: tl.constexpr, MERGED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Results of an item that one program has whole; else its part, and of the last to arrive, the item's results."""
    row = first_row + tl.arange(0, BLOCK_M)
    if is_whole:
        store_rows(
            acc, m, total, row, num_rows, first, head, out, lse, sinks, D, BLOCK_D, HEADS, GROUP, HAS_SINKS, HAS_LSE
        )
    else:
        low, high = first_unit // share, (first_unit + blocks - 1) // share
        slot = 2 * tl.program_id(0) + tl.where(tl.program_id(0) == low, 1, 0)
        store_part(acc, m, total, row < num_rows, slot, part_o, part_ml, BLOCK_M, BLOCK_D)
        if tl.atomic_add(counters + low, 1, sem="acq_rel") == high - low:
            tl.store(counters + low, 0)
            merge_rows(
                first_row, num_rows, low, high, part_o, part_ml, first, head, out, lse, sinks,
                D, BLOCK_D, BLOCK_M, HEADS, GROUP, HAS_SINKS, HAS_LSE, MERGED, PARTS,
            )  # fmt: skip


@triton.jit
def blocks_of(count, length, window, BLOCK_N: tl.constexpr, WINDOW: tl.constexpr):
    """(first position seen, where its block starts, blocks to the end) of sequences; one block where there is none."""
    begin = tl.zeros_like(length)
    if WINDOW:
        begin = tl.maximum(length - count - window, 0)
    origin = begin // BLOCK_N * BLOCK_N
    return begin, origin, tl.maximum(tl.cdiv(length - origin, BLOCK_N), 1)


@triton.jit
def unit_ends(
    num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, window, most_rows,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BATCH: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """int32 [BATCH]: units of all sequences up to each, itself included; those with too many rows have none here."""
    _, count, _, length = batch_of(
        tl.arange(0, BATCH), num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
    )
    _, _, blocks = blocks_of(count, length, window, BLOCK_N, WINDOW)
    tiles = tl.where(count * GROUP <= most_rows, tl.cdiv(count * GROUP, BLOCK_M), 0)
    return tl.cumsum(tiles * blocks * KV_HEADS, 0)


# sizes of a batch: a kernel for every multiple of 16 would be compiled again and again
@triton.jit(
    do_not_specialize=[
        "num_sequences", "num_tokens", "num_indices", "num_pages", "window",
        "q_code", "page_code", "most_rows", "least_share",
    ]
)  # fmt: skip
def decode(
    q, k, v, qo_indptr, kv_last, kv_indptr, kv_indices, sinks, out, lse, part_o, part_ml, counters, fault,
    q_code, page_code, num_sequences, num_tokens, num_indices, num_pages, q_token, q_head,
    page_stride, slot_stride, head_stride, scale, cap, window, most_rows, least_share,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BATCH: tl.constexpr,
    HEADS: tl.constexpr, GROUP: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_LSE: tl.constexpr, STAGES: tl.constexpr,
    MERGED: tl.constexpr, PARTS: tl.constexpr, EMULATE: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Serves sequences of at most most_rows rows (queries x GROUP), checks the table and clears padding."""
    KV_HEADS: tl.constexpr = HEADS // GROUP
    CHUNK: tl.constexpr = 128
    used_tokens = tl.load(qo_indptr + num_sequences)
    if HAS_TABLE:  # loaded first and looked at last: nothing waits
        used_entries = tl.minimum(tl.load(kv_indptr + num_sequences), num_indices)
        table_at = tl.program_id(0) * CHUNK
        listed = table_at + tl.arange(0, CHUNK)
        some_pages = tl.load(kv_indices + listed, mask=listed < num_indices, other=0)
    ends = unit_ends(
        num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, window, most_rows,
        BLOCK_M, BLOCK_N, BATCH, KV_HEADS, GROUP, PAGE, HAS_TABLE, WINDOW,
    )  # fmt: skip
    num_units = tl.max(ends, 0)
    share = tl.maximum(tl.cdiv(num_units, tl.num_programs(0)), least_share)
    unit = tl.program_id(0) * share
    stop = tl.minimum(unit + share, num_units)
    within, first, count, entry, length = sequence_at(
        unit, ends, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
    )
    wait_for_previous(CHAINED)
    while unit < stop:
        begin, origin, blocks = blocks_of(count, length, window, BLOCK_N, WINDOW)
        item, block = within // blocks, within % blocks
        taken = tl.minimum(blocks - block, stop - unit)
        head = item % KV_HEADS
        first_row = item // KV_HEADS * BLOCK_M
        row = first_row + tl.arange(0, BLOCK_M)
        num_rows = count * GROUP
        query = load_queries(
            q, row, num_rows, first, head, q_token, q_head, fault, q_code, D, BLOCK_D, GROUP, k.dtype.element_ty
        )
        start = origin + block * BLOCK_N
        acc, m, total = walk(
            tl.zeros([BLOCK_M, BLOCK_D], tl.float32), tl.full([BLOCK_M], NEG_INF, tl.float32),
            tl.zeros([BLOCK_M], tl.float32), query,
            k + head.to(tl.int64) * head_stride, v + head.to(tl.int64) * head_stride, length - count + row // GROUP,
            begin, start, tl.minimum(start + taken * BLOCK_N, length), length,
            entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
            D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, True, STAGES, EMULATE,
        )  # fmt: skip
        store_item(
            acc, m, total, first_row, num_rows, unit - block, blocks, share, taken == blocks, first, head, out, lse,
            sinks, part_o, part_ml, counters, D, BLOCK_D, BLOCK_M, HEADS, GROUP, HAS_SINKS, HAS_LSE, MERGED, PARTS,
        )  # fmt: skip
        unit += taken
        if unit < stop:
            within, first, count, entry, length = sequence_at(
                unit, ends, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
            )
    clear_padding(used_tokens, num_tokens, out, lse, D, HEADS, HAS_LSE)
    if HAS_TABLE:
        check_pages(some_pages, table_at, used_entries, kv_indices, num_pages, fault, page_code, CHUNK)
