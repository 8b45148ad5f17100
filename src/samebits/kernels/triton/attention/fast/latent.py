"""Latent attention in the fast tier: a row of the cache is read once, as a key for all query heads and as their value.

A row is V_DIM elements, which are the value, and R more. Work is shared as in decode.py; any number of queries.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.fast.decode import (
    blocks_of,
    check_pages,
    clear_padding,
    store_item,
    unit_ends,
)
from samebits.kernels.triton.attention.fast.tile import dot, load_queries, row_offsets, sequence_at, weigh
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.limits import NEG_INF


@triton.jit
def latent_step(
    acc, m, total, at, q, q_more, rows, q_position, begin, length, entry, kv_indices, num_pages, page_stride,
    slot_stride, scale, cap, window, V_DIM: tl.constexpr, R: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr,
    HAS_TABLE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    """One block of positions from `at` on added to (acc, m, total)."""
    offset = row_offsets(
        at,
        begin,
        length,
        entry,
        kv_indices,
        num_pages,
        page_stride,
        slot_stride,
        BLOCK_N,
        PAGE,
        HAS_TABLE,
        WINDOW,
        True,
    )[:, None]
    latent = tl.load(rows + offset + tl.arange(0, V_DIM)[None, :])
    more = tl.load(rows + offset + V_DIM + tl.arange(0, R)[None, :])
    s = dot(q, tl.trans(latent), tl.zeros([q.shape[0], BLOCK_N], tl.float32), EMULATE)
    s = dot(q_more, tl.trans(more), s, EMULATE)
    p, alpha, m, total = weigh(
        s, m, total, at + tl.arange(0, BLOCK_N), q_position, length, scale, cap, window, CAUSAL, WINDOW, CAP, True
    )
    return dot(p.to(latent.dtype), latent, acc * alpha[:, None], EMULATE), m, total


@triton.jit
def latent_walk(
    acc, m, total, q, q_more, rows, q_position, begin, start, stop, length, entry, kv_indices, num_pages, page_stride,
    slot_stride, scale, cap, window, V_DIM: tl.constexpr, R: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr,
    HAS_TABLE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, STAGES: tl.constexpr,
    EMULATE: tl.constexpr,
):  # fmt: skip
    """Positions start .. stop - 1 in blocks added to (acc, m, total); see `walk` in tile.py."""
    if EMULATE:  # the interpreter's `range` takes no bounds from memory
        at = start
        while at < stop:
            acc, m, total = latent_step(
                acc, m, total, at, q, q_more, rows, q_position, begin, length, entry, kv_indices, num_pages,
                page_stride, slot_stride, scale, cap, window, V_DIM, R, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP,
                EMULATE,
            )  # fmt: skip
            at += BLOCK_N
    else:
        for at in tl.range(start, stop, BLOCK_N, num_stages=STAGES):
            acc, m, total = latent_step(
                acc, m, total, at, q, q_more, rows, q_position, begin, length, entry, kv_indices, num_pages,
                page_stride, slot_stride, scale, cap, window, V_DIM, R, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP,
                EMULATE,
            )  # fmt: skip
    return acc, m, total


# sizes of a batch: a kernel for every multiple of 16 would be compiled again and again
@triton.jit(
    do_not_specialize=["num_sequences", "num_tokens", "num_indices", "num_pages", "window", "q_code", "page_code"]
)
def latent(
    q, rows, qo_indptr, kv_last, kv_indptr, kv_indices, sinks, out, lse, part_o, part_ml, counters, fault,
    q_code, page_code, num_sequences, num_tokens, num_indices, num_pages, q_token, q_head, page_stride, slot_stride,
    scale, cap, window,
    V_DIM: tl.constexpr, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BATCH: tl.constexpr,
    HEADS: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_LSE: tl.constexpr, STAGES: tl.constexpr, MERGED: tl.constexpr,
    PARTS: tl.constexpr, LEAST_SHARE: tl.constexpr, EMULATE: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Serves all sequences, checks the table and clears padding. An item is a tile of BLOCK_M rows, queries x heads."""
    CHUNK: tl.constexpr = 128
    ANY_ROWS: tl.constexpr = 1 << 30
    used_tokens = tl.load(qo_indptr + num_sequences)
    if HAS_TABLE:  # loaded first and looked at last: nothing waits
        used_entries = tl.minimum(tl.load(kv_indptr + num_sequences), num_indices)
        table_at = tl.program_id(0) * CHUNK
        listed = table_at + tl.arange(0, CHUNK)
        some_pages = tl.load(kv_indices + listed, mask=listed < num_indices, other=0)
    ends = unit_ends(
        num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, window, ANY_ROWS,
        BLOCK_M, BLOCK_N, BATCH, 1, HEADS, PAGE, HAS_TABLE, WINDOW,
    )  # fmt: skip
    num_units = tl.max(ends, 0)
    share = tl.maximum(tl.cdiv(num_units, tl.num_programs(0)), LEAST_SHARE)
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
        row = item * BLOCK_M + tl.arange(0, BLOCK_M)
        num_rows = count * HEADS
        dtype: tl.constexpr = rows.dtype.element_ty
        query = load_queries(q, row, num_rows, first, 0, q_token, q_head, fault, q_code, V_DIM, V_DIM, HEADS, dtype)
        more = load_queries(q + V_DIM, row, num_rows, first, 0, q_token, q_head, fault, q_code, R, R, HEADS, dtype)
        start = origin + block * BLOCK_N
        acc, m, total = latent_walk(
            tl.zeros([BLOCK_M, V_DIM], tl.float32), tl.full([BLOCK_M], NEG_INF, tl.float32),
            tl.zeros([BLOCK_M], tl.float32), query, more, rows, length - count + row // HEADS,
            begin, start, tl.minimum(start + taken * BLOCK_N, length), length,
            entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
            V_DIM, R, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, STAGES, EMULATE,
        )  # fmt: skip
        store_item(
            acc, m, total, item * BLOCK_M, num_rows, unit - block, blocks, share, taken == blocks, first, 0, out, lse,
            sinks, part_o, part_ml, counters, V_DIM, V_DIM, BLOCK_M, HEADS, HEADS, HAS_SINKS, HAS_LSE, MERGED, PARTS,
        )  # fmt: skip
        unit += taken
        if unit < stop:
            within, first, count, entry, length = sequence_at(
                unit, ends, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
            )
    clear_padding(used_tokens, num_tokens, out, lse, V_DIM, HEADS, HAS_LSE)
    if HAS_TABLE:
        check_pages(some_pages, table_at, used_entries, kv_indices, num_pages, fault, page_code, CHUNK)
