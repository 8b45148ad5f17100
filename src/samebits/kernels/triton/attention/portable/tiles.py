"""Attention of sequences with several queries over 16-bit caches: tiles of queries, exact maximum first.

For the heads that registers/kernel.py does not take: above 128 elements, or not of whole pieces of 8.

Both products are float32 dots of 16 terms, which Triton computes as one chain of multiply-adds in the order of k on the
FMA units (input_precision "ieee"); products are exact, so it does not matter whether an addition is fused. A run of 16
positions is one dot. A run of 8 of a head is one dot whose other 8 terms are zeros.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_QUERY, BAD_SCORE, BAD_SINKS, BAD_VALUE
from samebits.kernels.triton.attention.portable.work import tile_item, tile_total
from samebits.kernels.triton.attention.sequences import (
    CUT,
    RUN,
    as_operand,
    in_range,
    page_of,
    refuse_counts,
    sequences,
    settled_score,
)
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import LOG2E, exp, log2, recip, soft_capped
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.rows import fault_where, store_narrow
from samebits.kernels.triton.lib.settling import settle


@triton.jit
def chain_dot(a, b, zero):
    """float32 [M, 16] times [16, N]: every element a chain over k from +0.

    `zero` is a number of the launch: after a dot that starts at a known zero, the compiler may start it at what is
    added to it, which is another order.
    """
    start = tl.zeros([a.shape[0], b.shape[1]], tl.float32) + zero
    return tl.dot(a, b, start, input_precision="ieee", out_dtype=tl.float32)


@triton.jit
def tile_dots(q_ptrs, k_ptr, real, cells, readable, zero, D: tl.constexpr, SLICES: tl.constexpr, FORMAT: tl.constexpr):
    """float32 [M, N]: the queries at q_ptrs [M] against the keys at cells [N], head order."""
    at = tl.arange(0, 16)
    low = (at < 8)[None, :]
    HALF: tl.constexpr = (SLICES + 1) // 2
    total = tl.zeros([q_ptrs.shape[0], cells.shape[0]], tl.float32)
    # The two halves of the tree in a loop: code and registers of one.
    for first in tl.range(0, SLICES, HALF, num_stages=1):
        q = ()
        k = ()
        for i in tl.static_range(HALF):
            d = (first + i) * 16 + at
            q += (tl.load(q_ptrs[:, None] + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0),)
            k += (tl.load(k_ptr + cells[None, :] + d[:, None], mask=readable[None, :] & (d < D)[:, None], other=0.0),)
        for i in tl.static_range(HALF):
            keys = k[i].to(tl.float32)
            queries = as_operand(q[i].to(tl.float32), FORMAT)
            even = chain_dot(tl.where(low, queries, 0.0), keys, zero)
            node = even + chain_dot(tl.where(low, 0.0, queries), keys, zero)
            # A binary counter: a finished left subtree waits in s1, s2 or s4.
            if i % 2 == 0:
                s1 = node
            else:
                node = s1 + node
                if i % 4 == 1:
                    s2 = node
                else:
                    node = s2 + node
                    if i % 8 == 3:
                        s4 = node
                    else:
                        node = s4 + node
        total = total + node
    return total


@triton.jit
def refuse_queries(q_ptrs, real, D: tl.constexpr, D_PAD: tl.constexpr, FORMAT: tl.constexpr, fault_ptr):
    d = tl.arange(0, D_PAD)
    q = tl.load(q_ptrs[:, None] + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)
    fault_where(fault_ptr, BAD_QUERY, in_range(as_operand(q, FORMAT), FORMAT) == 0)


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
def tile_scores(rows, sequence, positions, keys, tables, logits, num_pages, window, zero, fault_ptr, D, SLICES):
    """s [M, N] of a tile's rows at `positions` [N], -inf where not kept.

    rows       pointers to queries [M], which of them are real, their slopes, their positions
    sequence   first entry of its table, length, KV head
    """
    q_ptrs, real, slopes, q_positions = rows
    entry, length, head = sequence
    page, slot, readable = page_of(
        tables.indices_ptr, entry, positions, positions < length, tables.page_size, num_pages, fault_ptr, tables.PAGED
    )
    cells = page * keys.page + slot * keys.slot + head * keys.head
    score = tile_dots(q_ptrs, keys.ptr, real, cells, readable, zero, D, SLICES, keys.FORMAT)
    s = settled_score(score, keys.FORMAT) * logits.scale
    if logits.CAP:
        s = soft_capped(s, logits.cap, logits.inv_cap)
    if logits.slopes_ptr is not None:
        s = s + slopes[:, None] * (positions[None, :] - q_positions[:, None]).to(tl.float32)
    kept = readable[None, :] & (q_positions >= 0)[:, None]
    if logits.CAUSAL:
        kept &= positions[None, :] <= q_positions[:, None]
    if logits.WINDOW:
        kept &= positions[None, :] >= q_positions[:, None] - window
    return tl.where(kept, s, NEG_INF)


@triton.jit
def load_values(sequence, positions, low, high, column, values, tables, num_pages, fault_ptr, V_DIM):
    """Values [N, V_PAD] of one head at positions from low to high - 1; zeros elsewhere."""
    entry, _, head = sequence
    kept = (positions >= low) & (positions < high)
    page, slot, kept = page_of(
        tables.indices_ptr, entry, positions, kept, tables.page_size, num_pages, fault_ptr, tables.PAGED
    )
    cells = page * values.page + slot * values.slot
    mask = kept[:, None] & (column < V_DIM)[None, :]
    return tl.load(values.ptr + head * values.head + cells[:, None] + column[None, :], mask=mask, other=0.0)


@triton.jit
def add_cut(s_cut, sequence, shift, cut, low, end, column, values, tables, num_pages, zero, fault_ptr, M, V_DIM):
    """(sums of values [M, V_PAD], sums of p [M, 16], all alike) of positions cut .. end - 1 with scores at s_cut."""
    run = tl.arange(0, RUN)
    cut_out = tl.zeros([M, column.shape[0]], tl.float32)
    cut_total = tl.zeros([M, 16], tl.float32)
    s_next = tl.load(s_cut)
    v_next = load_values(sequence, cut + run, low, end, column, values, tables, num_pages, fault_ptr, V_DIM)
    at = cut
    while at < end:
        # The next run is on its way while this one is used.
        s, v = s_next, v_next.to(tl.float32)
        s_next = tl.load(s_cut + (tl.minimum(at + RUN, end - 1) - cut) // RUN * RUN)
        v_next = load_values(sequence, at + RUN + run, low, end, column, values, tables, num_pages, fault_ptr, V_DIM)
        p = tl.where(s == NEG_INF, 0.0, exp(s - shift[:, None]))
        cut_total = cut_total + chain_dot(p, tl.full([16, 16], 1.0, tl.float32), zero)
        cut_out = cut_out + chain_dot(as_operand(p, values.FORMAT), v, zero)
        at += RUN
    return cut_out, cut_total


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
    q_heads = part * HEADS + row % HEADS
    q_positions = tl.where(real, length - rows + query, -1)
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
    asked, sequence = (q_ptrs, real, slopes, q_positions), (entry, length, part * HEADS // heads.GROUP)
    tl.debug_barrier()
    at = start
    while at < stop:
        positions = at + tl.arange(0, tile.N)
        s = tile_scores(
            asked, sequence, positions, keys, tables, logits, num_pages, window, zero, fault_ptr, heads.D, tile.SLICES
        )
        largest = tl.maximum(largest, tl.max(s, axis=1))
        if tile.ALL_KEPT or at - start < room:
            tl.store(s_rows + (positions - start)[None, :], s)
        at += tile.N
    fault_where(fault_ptr, BAD_SCORE, (largest <= LARGEST_F32) == 0)
    shift = tl.where(largest == NEG_INF, 0.0, largest)
    out = tl.zeros([tile.M, tile.V_PAD], tl.float32)
    total = tl.zeros([tile.M], tl.float32)
    cut = start
    while cut < stop:
        kept_at = cut - start
        if not tile.ALL_KEPT and kept_at >= room:
            kept_at = room
            tl.debug_barrier()
            for within in tl.range(0, CUT, tile.N):
                positions = cut + within + tl.arange(0, tile.N)
                s = tile_scores(
                    asked, sequence, positions, keys, tables, logits, num_pages, window, zero, fault_ptr, heads.D,
                    tile.SLICES,
                )  # fmt: skip
                tl.store(s_rows + (room + within + tl.arange(0, tile.N))[None, :], s)
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
