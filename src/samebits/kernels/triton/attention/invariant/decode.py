"""Attention of sequences with few queries in the tier invariant: a fixed number of programs share all splits.

Every (sequence, tile of rows, KV head) is an item of as many units as it has splits. Units are numbered over all items,
and program p takes units p * share .. (p + 1) * share - 1. Rows of an item of several units go to scratch, and join.py
joins them. Where scratch has no room for all of them, an item is one unit, and one program walks over all its splits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.fast.decode import check_pages, clear_padding
from samebits.kernels.triton.attention.fast.tile import batch_of, load_queries, sequence_at, store_rows
from samebits.kernels.triton.attention.invariant.tile import SPLIT, join, nothing_seen, walk
from samebits.kernels.triton.lib.chaining import wait_for_previous


@triton.jit
def splits_of(count, length, window, WINDOW: tl.constexpr):
    """(first position seen, where its split starts, splits to the end) of sequences; one split where there is none."""
    begin = tl.zeros_like(length)
    if WINDOW:
        begin = tl.maximum(length - count - window, 0)
    origin = begin // SPLIT * SPLIT
    return begin, origin, tl.maximum(tl.cdiv(length - origin, SPLIT), 1)


@triton.jit
def unit_ends(
    num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, window, most_rows, room,
    BLOCK_M: tl.constexpr, BATCH: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Of all sequences up to each, itself included: (units, rows in scratch); and whether every split is a unit.

    room: rows that scratch can hold. Row r of a sequence's nth unit of a tile is at (its head, split, r) there.
    """
    _, count, _, length = batch_of(
        tl.arange(0, BATCH), num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
    )
    _, _, splits = splits_of(count, length, window, WINDOW)
    rows = tl.where(count * GROUP <= most_rows, count * GROUP, 0)
    stored = tl.where(splits > 1, rows * splits, 0) * KV_HEADS
    is_cut = tl.sum(stored.to(tl.int64), 0) <= room
    units = tl.cdiv(rows, BLOCK_M) * tl.where(is_cut, splits, 1) * KV_HEADS
    return tl.cumsum(units, 0), tl.cumsum(tl.where(is_cut, stored, 0), 0), is_cut


@triton.jit
def store_part(acc, m, total, row, num_rows, at, part_o, part_ml, BLOCK_D: tl.constexpr):
    """Rows of one split; row 0 of the sequence is row `at` of scratch."""
    inside = row < num_rows
    place = (at + row).to(tl.int64)
    tl.store(part_o + place[:, None] * BLOCK_D + tl.arange(0, BLOCK_D)[None, :], acc, mask=inside[:, None])
    tl.store(part_ml + 2 * place, m, mask=inside)
    tl.store(part_ml + 2 * place + 1, total, mask=inside)


# sizes of a batch: a kernel for every multiple of 16 would be compiled again and again
@triton.jit(
    do_not_specialize=[
        "num_sequences", "num_tokens", "num_indices", "num_pages", "window",
        "q_code", "page_code", "most_rows", "room",
    ]
)  # fmt: skip
def decode(
    q, k, v, qo_indptr, kv_last, kv_indptr, kv_indices, sinks, out, lse, part_o, part_ml, fault,
    q_code, page_code, num_sequences, num_tokens, num_indices, num_pages, q_token, q_head,
    page_stride, slot_stride, head_stride, scale, cap, window, most_rows, room,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BATCH: tl.constexpr,
    HEADS: tl.constexpr, GROUP: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_LSE: tl.constexpr, STAGES: tl.constexpr,
    EMULATE: tl.constexpr, CHAINED: tl.constexpr,
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
    ends, stored, is_cut = unit_ends(
        num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, window, most_rows, room,
        BLOCK_M, BATCH, KV_HEADS, GROUP, PAGE, HAS_TABLE, WINDOW,
    )  # fmt: skip
    num_units = tl.max(ends, 0)
    share = tl.cdiv(num_units, tl.num_programs(0))
    unit = tl.program_id(0) * share
    stop = tl.minimum(unit + share, num_units)
    within, first, count, entry, length = sequence_at(
        unit, ends, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
    )
    wait_for_previous(CHAINED)
    while unit < stop:
        begin, origin, splits = splits_of(count, length, window, WINDOW)
        num_splits = tl.where(is_cut, splits, 1)
        item, split = within // num_splits, within % num_splits
        head = item % KV_HEADS
        first_row = item // KV_HEADS * BLOCK_M
        row = first_row + tl.arange(0, BLOCK_M)
        num_rows = count * GROUP
        query = load_queries(
            q, row, num_rows, first, head, q_token, q_head, fault, q_code, D, BLOCK_D, GROUP, k.dtype.element_ty
        )
        start = origin + split * SPLIT
        end = tl.where(is_cut, tl.minimum(start + SPLIT, length), length)
        first_block = tl.maximum(start, begin // BLOCK_N * BLOCK_N)  # blocks before it are seen by no row
        # Triton spreads warps over the columns of a product that has more of them than rows
        total, total_sums, total_m = nothing_seen(BLOCK_M, BLOCK_D, 2 * BLOCK_M)
        acc, sums, m = nothing_seen(BLOCK_M, BLOCK_D, 2 * BLOCK_M)
        total, total_sums, total_m, acc, sums, m = walk(
            total, total_sums, total_m, acc, sums, m, query,
            k + head.to(tl.int64) * head_stride, v + head.to(tl.int64) * head_stride, length - count + row // GROUP,
            begin, first_block, end, length,
            entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
            D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, True, STAGES, EMULATE,
        )  # fmt: skip
        total, total_sums, total_m = join(total, total_sums, total_m, acc, sums, m)
        if num_splits == 1:
            store_rows(
                total, total_m, tl.max(total_sums, 1), row, num_rows, first, head, out, lse, sinks,
                D, BLOCK_D, HEADS, GROUP, HAS_SINKS, HAS_LSE,
            )  # fmt: skip
        else:
            at = tl.max(tl.where(ends <= unit, stored, 0), 0) + (head * num_splits + split) * num_rows
            store_part(total, total_m, tl.max(total_sums, 1), row, num_rows, at, part_o, part_ml, BLOCK_D)
        unit += 1
        if unit < stop:
            within, first, count, entry, length = sequence_at(
                unit, ends, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
            )
    clear_padding(used_tokens, num_tokens, out, lse, D, HEADS, HAS_LSE)
    if HAS_TABLE:
        check_pages(some_pages, table_at, used_entries, kv_indices, num_pages, fault, page_code, CHUNK)
