"""Several queries of wide heads: tiles of queries times heads, exact maximum first; see ../tiles.py.

The sums of a tile's values lie in scratch, and a cut is added to them piece by piece of their columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_SINKS
from samebits.kernels.triton.attention.portable.tile_dots import add_cut
from samebits.kernels.triton.attention.portable.tiles import store_tile
from samebits.kernels.triton.attention.portable.wide.scores import refuse_wide_queries, row_extras, wide_scores
from samebits.kernels.triton.attention.portable.work import tile_item, tile_total
from samebits.kernels.triton.attention.sequences import CUT, RUN, refuse_counts, sequences
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import exp
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.rows import fault_where


class WideTile(NamedTuple):
    """How attend_wide cuts its work, all constexpr.

    M, N        rows (queries times heads) and positions of a tile
    COLUMNS     of values that are summed at once
    ALL_KEPT    no sequence is longer than the positions whose scores are kept
    SEQ_BLOCK   sequences looked at together
    """

    M: Any
    N: Any
    COLUMNS: Any
    ALL_KEPT: Any
    SEQ_BLOCK: Any


@triton.jit
def keep_scores(largest, asked, sequence, start, stop, s_rows, keys, tables, logits, num_pages, window, zero, fault_ptr,
                D, N: tl.constexpr):  # fmt: skip
    """Scores of positions start .. stop - 1 to s_rows [M, ...]; [M]: the largest of them and of `largest`."""
    at = start
    while at < stop:
        position = tl.arange(0, N)
        s = wide_scores(asked, sequence, at + position, keys, tables, logits, num_pages, window, zero, fault_ptr, D)
        largest = tl.maximum(largest, tl.max(s, axis=1))
        tl.store(s_rows + (at - start + position)[None, :], s)
        at += N
    return largest


@triton.jit
def largest_score(largest, asked, sequence, at, stop, keys, tables, logits, num_pages, window, zero, fault_ptr, D,
                  N: tl.constexpr):  # fmt: skip
    """The same of scores that are not kept."""
    while at < stop:
        s = wide_scores(
            asked, sequence, at + tl.arange(0, N), keys, tables, logits, num_pages, window, zero, fault_ptr, D
        )
        largest = tl.maximum(largest, tl.max(s, axis=1))
        at += N
    return largest


@triton.jit
def attend_wide_tile(
    first, rows, entry, length, nth, part, queries, keys, values, results, s_rows, o_rows, room, tables, logits, heads,
    tile, num_pages, window, zero, fault_ptr,
):  # fmt: skip
    """Tile `nth` of a sequence's queries and one part of the heads."""
    HEADS: tl.constexpr = heads.HEADS
    QUERIES: tl.constexpr = tile.M // HEADS
    row = tl.arange(0, tile.M)
    query = nth * QUERIES + row // HEADS
    real = (row < QUERIES * HEADS) & (query < rows)
    q_heads = (part * HEADS + row % HEADS).to(tl.int64)
    q_ptrs = queries.ptr + (first + query).to(tl.int64) * queries.row + q_heads * queries.head
    refuse_wide_queries(q_ptrs, real, heads.D, keys.FORMAT, fault_ptr)
    start = 0
    stop = length
    low = 0
    if logits.WINDOW:
        low = length - rows + nth * QUERIES - window
        start = tl.maximum(low, 0) // CUT * CUT
    if logits.CAUSAL:
        stop = tl.minimum(length, length - rows + (nth + 1) * QUERIES)
    slopes, sinks = row_extras(logits, q_heads, real)
    fault_where(fault_ptr, BAD_SINKS, (sinks <= LARGEST_F32) == 0)
    asked = (q_ptrs, real, slopes, length - rows + query)
    sequence = (entry, length, (part * HEADS // heads.GROUP).to(tl.int64))
    kept_stop = stop if tile.ALL_KEPT else tl.minimum(stop, start + room)
    tl.debug_barrier()  # the last tile's scores have been read
    largest = keep_scores(
        sinks, asked, sequence, start, kept_stop, s_rows, keys, tables, logits, num_pages, window, zero, fault_ptr,
        heads.D, tile.N,
    )  # fmt: skip
    if not tile.ALL_KEPT:
        largest = largest_score(
            largest, asked, sequence, kept_stop, stop, keys, tables, logits, num_pages, window, zero, fault_ptr,
            heads.D, tile.N,
        )  # fmt: skip
    shift = tl.where(largest == NEG_INF, 0.0, largest)
    piece = tl.arange(0, tile.COLUMNS)
    for column in tl.range(0, heads.V_DIM, tile.COLUMNS):
        tl.store(o_rows + (column + piece)[None, :], tl.zeros([tile.M, tile.COLUMNS], tl.float32))
    total = tl.zeros([tile.M], tl.float32)
    cut = start
    while cut < stop:
        kept_at = cut - start
        if not tile.ALL_KEPT and kept_at >= room:
            kept_at = room
            tl.debug_barrier()
            keep_scores(
                sinks, asked, sequence, cut, tl.minimum(cut + CUT, stop), s_rows + room, keys, tables, logits,
                num_pages, window, zero, fault_ptr, heads.D, tile.N,
            )  # fmt: skip
        tl.debug_barrier()
        cut_total = tl.zeros([tile.M, 16], tl.float32)
        for column in tl.range(0, heads.V_DIM, tile.COLUMNS):
            cut_out, cut_total = add_cut(
                s_rows + (kept_at + tl.arange(0, RUN))[None, :], sequence, shift, cut, low, tl.minimum(cut + CUT, stop),
                column + piece, values, tables, num_pages, zero, fault_ptr, tile.M, heads.V_DIM,
            )  # fmt: skip
            to = o_rows + (column + piece)[None, :]
            tl.store(to, tl.load(to) + cut_out)
        total = total + tl.max(cut_total, axis=1)
        cut += CUT
    if logits.sinks_ptr is not None:
        total = total + exp(sinks - shift)
    tl.debug_barrier()
    place = (first + query).to(tl.int64) * (heads.NUM_PARTS * HEADS) + q_heads
    for column in tl.range(0, heads.V_DIM, tile.COLUMNS):
        out = tl.load(o_rows + (column + piece)[None, :])
        store_tile(results, out, largest, total, place, real, column + piece, fault_ptr, heads.V_DIM)


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "window"])
def attend_wide(
    queries, keys, values, results, tables, logits, heads, tile, s_ptr, o_ptr, room, zero, fault_ptr,
    num_tokens, num_seqs, num_entries, num_pages, window, o_pitch, CHAINED: tl.constexpr,
):  # fmt: skip
    """A fixed number of programs; item: a tile of M // HEADS queries and HEADS query heads of one KV head.

    queries .. heads   ../records.py
    s_ptr              [program, M, room + CUT] keeps the scores of the first `room` positions; those of later cuts are
                       computed twice
    o_ptr              [program, M, o_pitch]: sums of values
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
    row = tl.program_id(0).to(tl.int64) * tile.M + tl.arange(0, tile.M)
    s_rows, o_rows = s_ptr + (row * (room + CUT))[:, None], o_ptr + (row * o_pitch)[:, None]
    item = tl.program_id(0)
    while item < total_items:
        # The last tiles of a sequence see most: they come first.
        seq, nth = tile_item(
            total_items // NUM_PARTS - 1 - item // NUM_PARTS, tables.qo_ptr, tables.last_ptr, tables.indptr_ptr,
            num_seqs, num_entries, num_tokens, tables.page_size, fault_ptr, QUERIES, tables.PAGED, tile.SEQ_BLOCK,
        )  # fmt: skip
        first, rows, entry, length = sequences(
            seq, True, tables.qo_ptr, tables.last_ptr, tables.indptr_ptr, num_entries, num_tokens, tables.page_size,
            fault_ptr, tables.PAGED,
        )  # fmt: skip
        refuse_counts(rows, length, fault_ptr, logits.CAUSAL)
        attend_wide_tile(
            first, rows, entry, length, nth, item % NUM_PARTS, queries, keys, values, results, s_rows, o_rows, room,
            tables, logits, heads, tile, num_pages, window, zero, fault_ptr,
        )  # fmt: skip
        item += tl.num_programs(0)
