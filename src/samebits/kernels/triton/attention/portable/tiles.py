"""Attention of sequences with several queries over 16-bit caches: tiles of queries, exact maximum first.

For the heads that registers/kernel.py does not take: above 128 elements, or not of whole pieces of 8.

Both products are float32 dots of 16 terms, which Triton computes as one chain of multiply-adds in the order of k on the
FMA units (input_precision "ieee"); products are exact, so it does not matter whether an addition is fused. A run of 16
positions is one dot. A run of 8 of a head is one dot whose other 8 terms are zeros.
"""

from __future__ import annotations

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


@triton.jit
def tile_scores(
    q_ptrs, k_ptr, real, slopes, indices_ptr, fault_ptr, positions, q_positions, entry, length, head, num_pages,
    k_page, k_slot, k_head, scale, cap, inv_cap, window, zero, page_size: tl.constexpr, TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SLOPES: tl.constexpr, D: tl.constexpr,
    SLICES: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """s [M, N], -inf where not kept."""
    page, slot, readable = page_of(
        indices_ptr, entry, positions, positions < length, page_size, num_pages, fault_ptr, TABLE
    )
    cells = page * k_page + slot * k_slot + head * k_head
    score = tile_dots(q_ptrs, k_ptr, real, cells, readable, zero, D, SLICES, FORMAT)
    s = settled_score(score, FORMAT) * scale
    if CAP:
        s = soft_capped(s, cap, inv_cap)
    if SLOPES:
        s = s + slopes[:, None] * (positions[None, :] - q_positions[:, None]).to(tl.float32)
    kept = readable[None, :] & (q_positions >= 0)[:, None]
    if CAUSAL:
        kept &= positions[None, :] <= q_positions[:, None]
    if WINDOW:
        kept &= positions[None, :] >= q_positions[:, None] - window
    return tl.where(kept, s, NEG_INF)


@triton.jit
def load_values(
    v_ptr, indices_ptr, entry, positions, low, high, column, v_page, v_slot, num_pages, fault_ptr,
    page_size: tl.constexpr, TABLE: tl.constexpr, V_DIM: tl.constexpr,
):  # fmt: skip
    """Values [N, V_PAD] of one head at positions from low to high - 1; zeros elsewhere."""
    kept = (positions >= low) & (positions < high)
    page, slot, kept = page_of(indices_ptr, entry, positions, kept, page_size, num_pages, fault_ptr, TABLE)
    cells = page * v_page + slot * v_slot
    mask = kept[:, None] & (column < V_DIM)[None, :]
    return tl.load(v_ptr + cells[:, None] + column[None, :], mask=mask, other=0.0)


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "window"])
def attend_tiles(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, s_ptr, qo_ptr, last_ptr, indptr_ptr, indices_ptr, slopes_ptr, sinks_ptr,
    fault_ptr, num_tokens, num_seqs, num_entries, num_pages, room, q_row, q_head, k_page, k_slot, k_head, v_page,
    v_slot, v_head, scale, cap, inv_cap, window, zero, page_size: tl.constexpr, TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SLOPES: tl.constexpr, SINKS: tl.constexpr,
    LSE: tl.constexpr, K_FORMAT: tl.constexpr, V_FORMAT: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr,
    NUM_PARTS: tl.constexpr, D: tl.constexpr, SLICES: tl.constexpr, V_DIM: tl.constexpr, V_PAD: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, ALL_KEPT: tl.constexpr, SEQ_BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A fixed number of programs; item: a tile of M // HEADS queries and HEADS query heads of one KV head.

    s [program, M, room + CUT] keeps the scores of the first `room` positions; those of later cuts
    are computed twice. ALL_KEPT: no sequence is longer.
    """
    QUERIES: tl.constexpr = M // HEADS
    row = tl.arange(0, M)
    column = tl.arange(0, V_PAD)
    run = tl.arange(0, RUN)
    total_items = tile_total(
        qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries, num_tokens, page_size, fault_ptr, QUERIES, TABLE, SEQ_BLOCK
    )
    total_items *= NUM_PARTS
    wait_for_previous(CHAINED)
    pitch = room + CUT
    s_rows = s_ptr + tl.program_id(0).to(tl.int64) * M * pitch + (row * pitch)[:, None]
    turn = 0
    while turn * tl.num_programs(0) < total_items:
        # Alternate the direction so that no program gets the longest tile of every turn.
        nth = tl.where(turn % 2 == 0, tl.program_id(0), tl.num_programs(0) - 1 - tl.program_id(0))
        item = turn * tl.num_programs(0) + nth
        turn += 1
        if item < total_items:
            seq, tile = tile_item(
                total_items // NUM_PARTS - 1 - item // NUM_PARTS, qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries,
                num_tokens, page_size, fault_ptr, QUERIES, TABLE, SEQ_BLOCK,
            )  # fmt: skip
            first, rows, entry, length = sequences(
                seq, True, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
            )
            refuse_counts(rows, length, fault_ptr, CAUSAL)
            part = item % NUM_PARTS
            head = part * HEADS // GROUP
            query = tile * QUERIES + row // HEADS
            real = (row < QUERIES * HEADS) & (query < rows)
            q_heads = part * HEADS + row % HEADS
            q_positions = tl.where(real, length - rows + query, -1)
            q_ptrs = q_ptr + (first + query).to(tl.int64) * q_row + q_heads * q_head
            refuse_queries(q_ptrs, real, D, SLICES * 16, K_FORMAT, fault_ptr)
            start = 0
            stop = length
            low = 0
            if WINDOW:
                low = length - rows + tile * QUERIES - window
                start = tl.maximum(low, 0) // CUT * CUT
            if CAUSAL:
                stop = tl.minimum(length, length - rows + (tile + 1) * QUERIES)
            slopes = tl.zeros([M], tl.float32)
            if SLOPES:
                slopes = tl.load(slopes_ptr + q_heads, mask=real, other=0.0)
            largest = tl.full([M], NEG_INF, tl.float32)
            sinks = largest
            if SINKS:
                sinks = tl.load(sinks_ptr + q_heads, mask=real, other=NEG_INF)
                fault_where(fault_ptr, BAD_SINKS, (sinks <= LARGEST_F32) == 0)
                largest = sinks
            tl.debug_barrier()
            at = start
            while at < stop:
                positions = at + tl.arange(0, N)
                s = tile_scores(
                    q_ptrs, k_ptr, real, slopes, indices_ptr, fault_ptr, positions, q_positions, entry, length, head,
                    num_pages, k_page, k_slot, k_head, scale, cap, inv_cap, window, zero, page_size, TABLE, CAUSAL,
                    WINDOW, CAP, SLOPES, D, SLICES, K_FORMAT,
                )  # fmt: skip
                largest = tl.maximum(largest, tl.max(s, axis=1))
                if ALL_KEPT or at - start < room:
                    tl.store(s_rows + (positions - start)[None, :], s)
                at += N
            fault_where(fault_ptr, BAD_SCORE, (largest <= LARGEST_F32) == 0)
            shift = tl.where(largest == NEG_INF, 0.0, largest)
            out = tl.zeros([M, V_PAD], tl.float32)
            total = tl.zeros([M], tl.float32)
            cut = start
            while cut < stop:
                kept_at = cut - start
                if not ALL_KEPT and kept_at >= room:
                    kept_at = room
                    tl.debug_barrier()
                    for within in tl.range(0, CUT, N):
                        s = tile_scores(
                            q_ptrs, k_ptr, real, slopes, indices_ptr, fault_ptr, cut + within + tl.arange(0, N),
                            q_positions, entry, length, head, num_pages, k_page, k_slot, k_head, scale, cap, inv_cap,
                            window, zero, page_size, TABLE, CAUSAL, WINDOW, CAP, SLOPES, D, SLICES, K_FORMAT,
                        )  # fmt: skip
                        tl.store(s_rows + (room + within + tl.arange(0, N))[None, :], s)
                tl.debug_barrier()
                cut_out = tl.zeros([M, V_PAD], tl.float32)
                cut_total = tl.zeros([M, 16], tl.float32)
                end = tl.minimum(cut + CUT, stop)
                s_cut = s_rows + (kept_at + run)[None, :]
                s_next = tl.load(s_cut)
                v_next = load_values(
                    v_ptr + head * v_head, indices_ptr, entry, cut + run, low, end, column, v_page, v_slot, num_pages,
                    fault_ptr, page_size, TABLE, V_DIM,
                )  # fmt: skip
                at = cut
                while at < end:
                    # The next run is on its way while this one is used.
                    s, v = s_next, v_next.to(tl.float32)
                    s_next = tl.load(s_cut + (tl.minimum(at + RUN, end - 1) - cut) // RUN * RUN)
                    v_next = load_values(
                        v_ptr + head * v_head, indices_ptr, entry, at + RUN + run, low, end, column, v_page, v_slot,
                        num_pages, fault_ptr, page_size, TABLE, V_DIM,
                    )  # fmt: skip
                    p = tl.where(s == NEG_INF, 0.0, exp(s - shift[:, None]))
                    cut_total = cut_total + chain_dot(p, tl.full([16, 16], 1.0, tl.float32), zero)
                    cut_out = cut_out + chain_dot(as_operand(p, V_FORMAT), v, zero)
                    at += RUN
                out = out + cut_out
                total = total + tl.max(cut_total, axis=1)
                cut += CUT
            if SINKS:
                total = total + exp(sinks - shift)
            seen = total > 0.0
            out = out * tl.where(seen, recip(tl.where(seen, total, 1.0)), 0.0)[:, None]
            fault_where(fault_ptr, BAD_VALUE, (tl.abs(out) <= LARGEST_F32) == 0)
            to = (first + query).to(tl.int64) * (NUM_PARTS * HEADS) + q_heads
            out_ptrs = out_ptr + to[:, None] * V_DIM + column[None, :]
            store_narrow(out_ptrs, out, real[:, None] & (column < V_DIM)[None, :])
            if LSE:
                lse = largest * LOG2E + log2(tl.where(seen, total, 1.0))
                tl.store(lse_ptr + to, settle(tl.where(seen, lse, NEG_INF)), mask=real)
