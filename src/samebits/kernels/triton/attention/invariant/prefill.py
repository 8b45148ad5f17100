"""Attention of sequences with many queries in the tier invariant: one tile of rows a program."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.fast.tile import load_queries, seen_by, sequence_at, store_rows, tiles_of_long
from samebits.kernels.triton.attention.invariant.tile import join, nothing_seen, walk


# sizes of a batch: a kernel for every multiple of 16 would be compiled again and again
@triton.jit(
    do_not_specialize=[
        "num_sequences", "num_tokens", "num_indices", "num_pages", "window", "q_code", "most_rows",
    ]
)  # fmt: skip
def prefill(
    q, k, v, qo_indptr, kv_last, kv_indptr, kv_indices, sinks, out, lse, fault,
    q_code, num_sequences, num_tokens, num_indices, num_pages, q_token, q_head,
    page_stride, slot_stride, head_stride, scale, cap, window, most_rows,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BATCH: tl.constexpr,
    HEADS: tl.constexpr, GROUP: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_LSE: tl.constexpr, STAGES: tl.constexpr,
    EMULATE: tl.constexpr,
):  # fmt: skip
    """Serves sequences of more than most_rows rows (queries x GROUP)."""
    KV_HEADS: tl.constexpr = HEADS // GROUP
    tile, ends = tiles_of_long(
        num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, most_rows,
        BLOCK_M, BATCH, KV_HEADS, GROUP, PAGE, HAS_TABLE,
    )  # fmt: skip
    head = tl.program_id(0) % KV_HEADS
    if tile >= 0:
        tile, first, count, entry, length = sequence_at(
            tile, ends, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
        )
        num_rows = count * GROUP
        row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        query = load_queries(
            q, row, num_rows, first, head, q_token, q_head, fault, q_code, D, BLOCK_D, GROUP, k.dtype.element_ty
        )
        q_position = length - count + row // GROUP
        begin, clear, stop = seen_by(tile, count, length, window, BLOCK_M, BLOCK_N, GROUP, CAUSAL, WINDOW)
        far = head.to(tl.int64) * head_stride
        keys, values = k + far, v + far
        total, total_sums, total_m = nothing_seen(BLOCK_M, BLOCK_D, 16)
        acc, sums, m = nothing_seen(BLOCK_M, BLOCK_D, 16)
        if not WINDOW:
            total, total_sums, total_m, acc, sums, m = walk(
                total, total_sums, total_m, acc, sums, m, query, keys, values, q_position, begin, 0, clear, length,
                entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
                D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, False, STAGES, EMULATE,
            )  # fmt: skip
        total, total_sums, total_m, acc, sums, m = walk(
            total, total_sums, total_m, acc, sums, m, query, keys, values, q_position, begin, clear, stop, length,
            entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
            D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, True, STAGES, EMULATE,
        )  # fmt: skip
        total, total_sums, total_m = join(total, total_sums, total_m, acc, sums, m)
        store_rows(
            total, total_m, tl.max(total_sums, 1), row, num_rows, first, head, out, lse, sinks,
            D, BLOCK_D, HEADS, GROUP, HAS_SINKS, HAS_LSE,
        )  # fmt: skip
