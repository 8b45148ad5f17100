"""Scores of a tile of queries: queries and keys into shared memory, masks, maxima."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_PAGE, BAD_QUERY
from samebits.kernels.triton.attention.portable.registers.memory import (
    ROW_BYTES,
    TILE_BYTES,
    M,
    N,
    load_columns,
    load_run,
    pattern_of,
    refuse,
    store_piece,
    store_rows,
)
from samebits.kernels.triton.attention.portable.registers.products import (
    score_places,
    tile_dots,
)
from samebits.kernels.triton.attention.sequences import as_operand, in_range, settled_score
from samebits.kernels.triton.lib.elementary import soft_capped
from samebits.kernels.triton.lib.limits import NEG_INF
from samebits.kernels.triton.lib.rows import fault_where
from samebits.kernels.triton.lib.threads import COMMIT, THREADS, WAIT_ALL, copies, load_per_thread, start_copy


@triton.jit
def larger(a, b):
    """The maximum; NaN where either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fill_cells(
    shared_ptr, to, cells, table, first, low, high, page_size: tl.constexpr, TABLE: tl.constexpr, SIZE: tl.constexpr,
    SWIZZLED: tl.constexpr,
):  # fmt: skip
    """Starts the copies of 64 cells from position `first`, zeros outside low .. high - 1, as a group.

    cells: (one head's pointer, strides of a page and a slot); table: (indices, first entry, pages). Sixteen cells
    never cross a page. Gives whether a page does not exist.
    """
    ptr, page_stride, slot_stride = cells
    indices_ptr, entry, num_pages = table
    thread = tl.arange(0, THREADS)
    piece, row = thread % 16, thread // 16
    place = to + row * ROW_BYTES + ((piece ^ row) if SWIZZLED else piece) * 16
    within = row.to(tl.int64) * slot_stride + piece * 8
    wrong = first < 0
    pages = ()
    for m in tl.static_range(4):
        position = first + 16 * m
        kept = (position + 16 > low) & (position < high)
        page = entry + position // page_size
        if TABLE:
            page = tl.load(indices_ptr + page, mask=kept, other=0)
        pages += (page,)
    for m in tl.static_range(4):
        position = first + 16 * m
        exists = (pages[m] >= 0) & (pages[m] < num_pages)
        wrong |= (position + 16 > low) & (position < high) & (exists == 0)
        slot = (position % page_size).to(tl.int64)
        cells_ptr = ptr + (pages[m].to(tl.int64) * page_stride + slot * slot_stride)
        for half in tl.static_range(2):
            at = position + 8 * half + row
            kept = exists & (at >= low) & (at < high) & (piece * 8 < SIZE)
            source = cells_ptr + half * 8 * slot_stride + within
            start_copy(shared_ptr, place + (2 * m + half) * (8 * ROW_BYTES), tl.where(kept, source, ptr), kept)
    copies(COMMIT)
    return wrong


@triton.jit
def fill_queries(shared_ptr, to, queries, tile, HEADS: tl.constexpr, D: tl.constexpr, FORMAT: tl.constexpr):
    """The tile's queries as operands into shared memory; which threads hold what is refused.

    queries: (pointer to the first head and row, strides of a row and a head); tile: (its first query, all queries).
    """
    q_ptr, q_row, q_head = queries
    first, rows = tile
    DTYPE: tl.constexpr = tl.bfloat16 if FORMAT == "bf16" else tl.float16
    thread = tl.arange(0, THREADS)
    piece = thread % 16
    wrong = tl.zeros([THREADS], tl.int1)
    for j in tl.range(0, 8):
        row = thread // 16 + 8 * j
        query = first + row // HEADS
        real = (row < M // HEADS * HEADS) & (query < rows)
        at = q_ptr + query.to(tl.int64) * q_row + (row % HEADS).to(tl.int64) * q_head + piece * 8
        q = load_columns(at, real & (piece * 8 < D))
        words = ()
        for n in tl.static_range(4):
            low, high = as_operand(q[2 * n], FORMAT), as_operand(q[2 * n + 1], FORMAT)
            good = in_range(low, FORMAT) & in_range(high, FORMAT)
            wrong |= good == 0
            low, high = tl.where(good, low, 0.0), tl.where(good, high, 0.0)
            words += (pattern_of(low, DTYPE) | (pattern_of(high, DTYPE) << 16),)
        store_piece(shared_ptr, to + row * ROW_BYTES + (piece ^ j) * 16, words)
    return wrong


@triton.jit
def _larger_of(a, b):
    both = ()
    for i in tl.static_range(8):
        both += (larger(a[i], b[i]),)
    return both


@triton.jit
def score_range(
    shared_ptr, memory, queries, keys, table, slopes_ptr, s_ptr, fault_ptr, tile, length, low, begin, end, kept_to,
    numbers, page_size: tl.constexpr, TABLE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """Scores of positions begin .. end - 1 to s [position - begin, M] while below kept_to, -inf where not kept.

    Gives 8 numbers a thread: the largest scores of its 8 rows at its positions. The rest: fill_queries, fill_cells.
    """
    scale, cap, inv_cap, window = numbers
    first, rows = tile
    row, key = score_places(tl.arange(0, THREADS))
    tl.debug_barrier()
    bad_query = fill_queries(shared_ptr, memory, queries, tile, HEADS, D, FORMAT)
    refuse(fault_ptr, BAD_QUERY, bad_query)
    buffer = memory + TILE_BYTES
    other = memory + 2 * TILE_BYTES
    bad_page = fill_cells(shared_ptr, buffer, keys, table, begin, low, end, page_size, TABLE, D, True)
    largest = ()
    for _ in tl.static_range(8):
        largest += (tl.full([THREADS], NEG_INF, tl.float32),)
    at = begin
    while at < end:
        copies(WAIT_ALL)
        tl.debug_barrier()
        bad_page |= fill_cells(shared_ptr, other, keys, table, at + N, low, end, page_size, TABLE, D, True)
        dots = tile_dots(shared_ptr, memory, buffer, D, FORMAT)
        slopes = ()
        for i in tl.static_range(8):
            slopes += (load_per_thread(slopes_ptr + (row + i) % HEADS, row >= 0) if slopes_ptr is not None else 0.0,)
        for j in tl.static_range(4):
            position = at + key + 8 * j
            scores = ()
            for i in tl.static_range(8):
                query = first + (row + i) // HEADS
                q_position = length - rows + query
                s = settled_score(dots[4 * i + j], FORMAT) * scale
                if CAP:
                    s = soft_capped(s, cap, inv_cap)
                if slopes_ptr is not None:
                    s = s + slopes[i] * (position - q_position).to(tl.float32)
                kept = (query < rows) & (position < end)
                if M % HEADS != 0:
                    kept &= row + i < M // HEADS * HEADS
                if CAUSAL:
                    kept &= position <= q_position
                if WINDOW:
                    kept &= position >= q_position - window
                scores += (tl.where(kept, s, NEG_INF),)
            store_rows(s_ptr + (position - begin) * M + row, scores, position < kept_to)
            largest = _larger_of(largest, scores)
        buffer, other = other, buffer
        at += N
    copies(WAIT_ALL)
    tl.debug_barrier()
    fault_where(fault_ptr, BAD_PAGE, bad_page)
    return largest


@triton.jit
def largest_of_rows(maxima, maxima_ptr):
    """The largest score of row thread % M in every thread, from each one's 8 rows; maxima_ptr: room for [16, M]."""
    thread = tl.arange(0, THREADS)
    row, key = score_places(thread)
    store_rows(maxima_ptr + (key // 32 * 8 + key % 8) * M + row, maxima, row >= 0)
    tl.debug_barrier()
    parts = load_run(maxima_ptr + thread % M)
    largest = parts[0]
    for n in tl.static_range(1, 16):
        largest = larger(largest, parts[n])
    return largest
