"""Rows whose splits decode.py left in scratch: joined in order, one row a program."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.fast.tile import batch_of, store_rows
from samebits.kernels.triton.attention.invariant.decode import splits_of, unit_ends
from samebits.kernels.triton.attention.invariant.tile import join
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.limits import NEG_INF

AHEAD = tl.constexpr(8)  # parts whose loads are under way together


@triton.jit
def joined_row(part_o, part_ml, place, num_rows, num_splits, BLOCK_D: tl.constexpr):
    """(acc [1, BLOCK_D], m [1], total [1]) of a row whose split 0 is at `place` of scratch."""
    d = tl.arange(0, BLOCK_D)
    acc = tl.zeros([1, BLOCK_D], tl.float32)
    sums = tl.zeros([1, 1], tl.float32)
    m = tl.full([1], NEG_INF, tl.float32)
    split = tl.zeros_like(num_splits)
    while split < num_splits:
        for j in tl.static_range(AHEAD):
            there = split + j < num_splits
            at = place + (split + j).to(tl.int64) * num_rows
            # scalars, which every thread reads for itself: none waits for another
            part_m = tl.load(part_ml + 2 * at, mask=there, other=NEG_INF)
            part_sum = tl.load(part_ml + 2 * at + 1, mask=there, other=0.0)
            part = tl.load(part_o + at * BLOCK_D + d, mask=there & (d >= 0), other=0.0)
            acc, sums, m = join(
                acc, sums, m, part[None, :], tl.full([1, 1], 0.0, tl.float32) + part_sum,
                tl.full([1], 0.0, tl.float32) + part_m,
            )  # fmt: skip
        split += AHEAD
    return acc, m, tl.max(sums, 1)


# sizes of a batch: a kernel for every multiple of 16 would be compiled again and again
@triton.jit(do_not_specialize=["num_sequences", "num_tokens", "num_indices", "window", "most_rows", "room"])
def join_splits(
    part_o, part_ml, qo_indptr, kv_last, kv_indptr, sinks, out, lse, num_sequences, num_tokens, num_indices,
    window, most_rows, room,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BATCH: tl.constexpr, HEADS: tl.constexpr,
    GROUP: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, WINDOW: tl.constexpr, HAS_SINKS: tl.constexpr,
    HAS_LSE: tl.constexpr, BY_TOKEN: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A head of one token a program where BY_TOKEN, else of one sequence."""
    KV_HEADS: tl.constexpr = HEADS // GROUP
    _, stored, is_cut = unit_ends(
        num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, window, most_rows, room,
        BLOCK_M, BATCH, KV_HEADS, GROUP, PAGE, HAS_TABLE, WINDOW,
    )  # fmt: skip
    b = tl.arange(0, BATCH)
    this = tl.program_id(0) // HEADS
    if BY_TOKEN:
        token = this
        passed = tl.load(qo_indptr + b + 1, mask=b < num_sequences, other=2147483647) <= token
        this = tl.sum(passed.to(tl.int32), 0)
    first, count, _, length = batch_of(
        this, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
    )
    _, _, num_splits = splits_of(count, length, window, WINDOW)
    num_rows = count * GROUP
    at = tl.zeros_like(count)
    stop = tl.where(is_cut & (num_splits > 1) & (num_rows <= most_rows), count, 0)
    if BY_TOKEN:
        at = token - first
        stop = tl.minimum(stop, at + 1)
    query_head = tl.program_id(0) % HEADS
    head = query_head // GROUP
    start = tl.max(tl.where(b < this, stored, 0), 0) + head * num_splits * num_rows
    wait_for_previous(CHAINED)
    while at < stop:
        row = at * GROUP + query_head % GROUP
        acc, m, total = joined_row(part_o, part_ml, (start + row).to(tl.int64), num_rows, num_splits, BLOCK_D)
        store_rows(
            acc, m, total, row + tl.arange(0, 1), num_rows, first, head, out, lse, sinks,
            D, BLOCK_D, HEADS, GROUP, HAS_SINKS, HAS_LSE,
        )  # fmt: skip
        at += 1
