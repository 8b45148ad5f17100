"""Attention of sequences with several queries over 16-bit caches: tiles of queries, exact maximum first.

For the heads that registers/kernel.py does not take: above 128 elements, or not of whole pieces of 8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_SCORE, BAD_SINKS, BAD_VALUE
from samebits.kernels.triton.attention.portable.tile_dots import add_cut, refuse_queries, tile_scores
from samebits.kernels.triton.attention.portable.work import tile_item, tile_total
from samebits.kernels.triton.attention.sequences import (
    CUT,
    RUN,
    refuse_counts,
    sequences,
)
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import LOG2E, exp, log2, recip
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.rows import fault_where, store_narrow
from samebits.kernels.triton.lib.settling import settle


class Tile(NamedTuple):
    """How attend_tiles cuts its work, all constexpr.

    M, N        rows (queries times heads) and positions of a tile
    SLICES      of 16 elements in a head, a power of two
    V_PAD       elements of a head of values, a power of two
    ALL_KEPT    no sequence is longer than the positions whose scores are kept
    SEQ_BLOCK   sequences looked at together
    """

    M: Any
    N: Any
    SLICES: Any
    V_PAD: Any
    ALL_KEPT: Any
    SEQ_BLOCK: Any


@triton.jit
def tile_maxima(
    largest,
    rows,
    sequence,
    start,
    stop,
    s_rows,
    room,
    keys,
    tables,
    logits,
    num_pages,
    window,
    zero,
    fault_ptr,
    D,
    tile,
):
    """[M]: the largest of `largest` and the scores of positions start .. stop - 1; the first `room` scores are kept."""
    at = start
    while at < stop:
        positions = at + tl.arange(0, tile.N)
        s = tile_scores(
            rows, sequence, positions, keys, tables, logits, num_pages, window, zero, fault_ptr, D, tile.SLICES
        )
        largest = tl.maximum(largest, tl.max(s, axis=1))
        if tile.ALL_KEPT or at - start < room:
            tl.store(s_rows + (positions - start)[None, :], s)
        at += tile.N
    fault_where(fault_ptr, BAD_SCORE, (largest <= LARGEST_F32) == 0)
    return largest


@triton.jit
def score_cut(rows, sequence, cut, s_cut, keys, tables, logits, num_pages, window, zero, fault_ptr, D, tile):
    """The scores of a cut, once more, to s_cut [M, CUT]."""
    for within in tl.range(0, CUT, tile.N):
        position = tl.arange(0, tile.N)
        s = tile_scores(
            rows, sequence, cut + within + position, keys, tables, logits, num_pages, window, zero, fault_ptr, D,
            tile.SLICES,
        )  # fmt: skip
        tl.store(s_cut + (within + position)[None, :], s)


@triton.jit
def store_tile(results, out, largest, total, to, real, column, fault_ptr, V_DIM):
    """The tile's results at places `to` [M] of [rows * heads]."""
    seen = total > 0.0
    out = out * tl.where(seen, recip(tl.where(seen, total, 1.0)), 0.0)[:, None]
    fault_where(fault_ptr, BAD_VALUE, (tl.abs(out) <= LARGEST_F32) == 0)
    out_ptrs = results.out_ptr + to[:, None] * V_DIM + column[None, :]
    store_narrow(out_ptrs, out, real[:, None] & (column < V_DIM)[None, :])
    if results.lse_ptr is not None:
        lse = largest * LOG2E + log2(tl.where(seen, total, 1.0))
        tl.store(results.lse_ptr + to, settle(tl.where(seen, lse, NEG_INF)), mask=real)


@triton.jit
def attend_tile(
    first, rows, entry, length, nth, part, queries, keys, values, results, s_rows, room, tables, logits, heads, tile,
    num_pages, window, zero, fault_ptr,
):  # fmt: skip
    """Tile `nth` of a sequence's queries and one part of the heads."""
    HEADS: tl.constexpr = heads.HEADS
    QUERIES: tl.constexpr = tile.M // HEADS
    row = tl.arange(0, tile.M)
    column = tl.arange(0, tile.V_PAD)
    query = nth * QUERIES + row // HEADS
    real = (row < QUERIES * HEADS) & (query < rows)
    q_heads = (part * HEADS + row % HEADS).to(tl.int64)
    q_positions = length - rows + query
    q_ptrs = queries.ptr + (first + query).to(tl.int64) * queries.row + q_heads * queries.head
    refuse_queries(q_ptrs, real, heads.D, tile.SLICES * 16, keys.FORMAT, fault_ptr)
    start = 0
    stop = length
    low = 0
    if logits.WINDOW:
        low = length - rows + nth * QUERIES - window
        start = tl.maximum(low, 0) // CUT * CUT
    if logits.CAUSAL:
        stop = tl.minimum(length, length - rows + (nth + 1) * QUERIES)
    slopes = tl.zeros([tile.M], tl.float32)
    if logits.slopes_ptr is not None:
        slopes = tl.load(logits.slopes_ptr + q_heads, mask=real, other=0.0)
    largest = tl.full([tile.M], NEG_INF, tl.float32)
    sinks = largest
    if logits.sinks_ptr is not None:
        sinks = tl.load(logits.sinks_ptr + q_heads, mask=real, other=NEG_INF)
        fault_where(fault_ptr, BAD_SINKS, (sinks <= LARGEST_F32) == 0)
        largest = sinks
    asked, sequence = (q_ptrs, real, slopes, q_positions), (entry, length, (part * HEADS // heads.GROUP).to(tl.int64))
    tl.debug_barrier()
    largest = tile_maxima(
        largest, asked, sequence, start, stop, s_rows, room, keys, tables, logits, num_pages, window, zero, fault_ptr,
        heads.D, tile,
    )  # fmt: skip
    shift = tl.where(largest == NEG_INF, 0.0, largest)
    out = tl.zeros([tile.M, tile.V_PAD], tl.float32)
    total = tl.zeros([tile.M], tl.float32)
    cut = start
    while cut < stop:
        kept_at = cut - start
        if not tile.ALL_KEPT and kept_at >= room:
            kept_at = room
            tl.debug_barrier()
            score_cut(
                asked, sequence, cut, s_rows + room, keys, tables, logits, num_pages, window, zero, fault_ptr, heads.D,
                tile,
            )  # fmt: skip
        tl.debug_barrier()
        cut_out, cut_total = add_cut(
            s_rows + (kept_at + tl.arange(0, RUN))[None, :], sequence, shift, cut, low, tl.minimum(cut + CUT, stop),
            column, values, tables, num_pages, zero, fault_ptr, tile.M, heads.V_DIM,
        )  # fmt: skip
        out = out + cut_out
        total = total + tl.max(cut_total, axis=1)
        cut += CUT
    if logits.sinks_ptr is not None:
        total = total + exp(sinks - shift)
    to = (first + query).to(tl.int64) * (heads.NUM_PARTS * HEADS) + q_heads
    store_tile(results, out, largest, total, to, real, column, fault_ptr, heads.V_DIM)


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "window"])
def attend_tiles(
    queries, keys, values, results, tables, logits, heads, tile, s_ptr, room, zero, fault_ptr,
    num_tokens, num_seqs, num_entries, num_pages, window, CHAINED: tl.constexpr,
):  # fmt: skip
    """A fixed number of programs; item: a tile of M // HEADS queries and HEADS query heads of one KV head.

    queries .. heads   records.py
    tile               Tile
    s_ptr              [program, M, room + CUT] keeps the scores of the first `room` positions; those of later cuts are
                       computed twice
    zero               0.0, see chain_dot
    """
    QUERIES: tl.constexpr = tile.M // heads.HEADS
    NUM_PARTS: tl.constexpr = heads.NUM_PARTS
    total_items = tile_total(
        tables.qo_ptr, tables.last_ptr, tables.indptr_ptr, num_seqs, num_entries, num_tokens, tables.page_size,
        fault_ptr, QUERIES, tables.PAGED, tile.SEQ_BLOCK,
    )  # fmt: skip
    total_items *= NUM_PARTS
    wait_for_previous(CHAINED)
    pitch = room + CUT
    s_rows = s_ptr + tl.program_id(0).to(tl.int64) * tile.M * pitch + (tl.arange(0, tile.M) * pitch)[:, None]
    turn = 0
    while turn * tl.num_programs(0) < total_items:
        # Alternate the direction so that no program gets the longest tile of every turn.
        nth = tl.where(turn % 2 == 0, tl.program_id(0), tl.num_programs(0) - 1 - tl.program_id(0))
        item = turn * tl.num_programs(0) + nth
        turn += 1
        if item < total_items:
            seq, nth_tile = tile_item(
                total_items // NUM_PARTS - 1 - item // NUM_PARTS, tables.qo_ptr, tables.last_ptr, tables.indptr_ptr,
                num_seqs, num_entries, num_tokens, tables.page_size, fault_ptr, QUERIES, tables.PAGED, tile.SEQ_BLOCK,
            )  # fmt: skip
            first, rows, entry, length = sequences(
                seq, True, tables.qo_ptr, tables.last_ptr, tables.indptr_ptr, num_entries, num_tokens,
                tables.page_size, fault_ptr, tables.PAGED,
            )  # fmt: skip
            refuse_counts(rows, length, fault_ptr, logits.CAUSAL)
            attend_tile(
                first, rows, entry, length, nth_tile, item % NUM_PARTS, queries, keys, values, results, s_rows, room,
                tables, logits, heads, tile, num_pages, window, zero, fault_ptr,
            )  # fmt: skip
