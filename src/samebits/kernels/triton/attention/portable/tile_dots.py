"""Scores of a tile of queries, and sums of values weighted by them, as float32 dots; see tiles.py.

Both products are dots of 16 terms, which Triton computes as one chain of multiply-adds in the order of k on the FMA
units (input_precision "ieee"); products are exact, so it does not matter whether an addition is fused. A run of 16
positions is one dot. A run of 8 of a head is one dot whose other 8 terms are zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_QUERY
from samebits.kernels.triton.attention.sequences import (
    RUN,
    as_operand,
    in_range,
    page_of,
    settled_score,
)
from samebits.kernels.triton.lib.elementary import exp, soft_capped
from samebits.kernels.triton.lib.limits import NEG_INF
from samebits.kernels.triton.lib.rows import fault_where


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
def key_cells(sequence, positions, keys, tables, num_pages, fault_ptr):
    """(where the keys of one head at `positions` [N] begin, which of them may be read).

    sequence   first entry of its table, length, KV head
    """
    entry, length, head = sequence
    page, slot, readable = page_of(
        tables.indices_ptr, entry, positions, positions < length, tables.page_size, num_pages, fault_ptr, tables.PAGED
    )
    return page * keys.page + slot * keys.slot + head * keys.head, readable


@triton.jit
def logits_of(score, rows, positions, readable, logits, window, FORMAT: tl.constexpr):
    """(s [M, N], which are kept) of a tile's products of queries and keys.

    rows   pointers to queries [M], which of them are real, their slopes, their positions, which are negative for
           queries before a sequence's first token
    """
    _, real, slopes, q_positions = rows
    s = settled_score(score, FORMAT) * logits.scale
    if logits.CAP:
        s = soft_capped(s, logits.cap, logits.inv_cap)
    if logits.slopes_ptr is not None:
        s = s + slopes[:, None] * (positions[None, :] - q_positions[:, None]).to(tl.float32)
    kept = readable[None, :] & real[:, None]
    if logits.CAUSAL:
        kept &= positions[None, :] <= q_positions[:, None]
    if logits.WINDOW:
        kept &= positions[None, :] >= q_positions[:, None] - window
    return s, kept


@triton.jit
def tile_scores(rows, sequence, positions, keys, tables, logits, num_pages, window, zero, fault_ptr, D, SLICES):
    """s [M, N] of a tile's rows at `positions` [N], -inf where not kept; see key_cells and logits_of."""
    cells, readable = key_cells(sequence, positions, keys, tables, num_pages, fault_ptr)
    score = tile_dots(rows[0], keys.ptr, rows[1], cells, readable, zero, D, SLICES, keys.FORMAT)
    s, kept = logits_of(score, rows, positions, readable, logits, window, keys.FORMAT)
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
