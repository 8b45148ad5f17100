"""Scores of a tile of rows against wide keys, as float32 dots of 16 terms; see ../tile_dots.py."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_QUERY, BAD_SCORE
from samebits.kernels.triton.attention.portable.tile_dots import chain_dot, key_cells, logits_of
from samebits.kernels.triton.attention.sequences import as_operand, in_range
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.rows import fault_where

PIECE = tl.constexpr(16)  # elements of a head at a time: two runs


@triton.jit
def wide_dots(q_ptrs, k_ptr, real, cells, readable, zero, D: tl.constexpr, FORMAT: tl.constexpr):
    """float32 [M, N]: the queries at q_ptrs [M] against the keys at cells [N], head order; D at most 1024."""
    PIECES: tl.constexpr = (D + PIECE - 1) // PIECE
    at = tl.arange(0, PIECE)
    low = (at < 8)[None, :]
    node = tl.zeros([q_ptrs.shape[0], cells.shape[0]], tl.float32)
    s1, s2, s4, s8, s16, s32, s64 = node, node, node, node, node, node, node
    for i in tl.range(0, PIECES):
        d = i * PIECE + at
        q = tl.load(q_ptrs[:, None] + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0)
        k = tl.load(k_ptr + cells[None, :] + d[:, None], mask=readable[None, :] & (d < D)[:, None], other=0.0)
        queries, keys = as_operand(q.to(tl.float32), FORMAT), k.to(tl.float32)
        even = chain_dot(tl.where(low, queries, 0.0), keys, zero)
        node = even + chain_dot(tl.where(low, 0.0, queries), keys, zero)
        # A binary counter: a finished left subtree waits in s1 ... s64.
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
                    if i % 16 == 7:
                        s8 = node
                    else:
                        node = s8 + node
                        if i % 32 == 15:
                            s16 = node
                        else:
                            node = s16 + node
                            if i % 64 == 31:
                                s32 = node
                            else:
                                s64 = s32 + node
    # What waits joins from the right; +0 beside it changes nothing.
    total = tl.zeros([q_ptrs.shape[0], cells.shape[0]], tl.float32)
    if PIECES % 2 == 1:
        total = s1
    if PIECES // 2 % 2 == 1:
        total = s2 + total
    if PIECES // 4 % 2 == 1:
        total = s4 + total
    if PIECES // 8 % 2 == 1:
        total = s8 + total
    if PIECES // 16 % 2 == 1:
        total = s16 + total
    if PIECES // 32 % 2 == 1:
        total = s32 + total
    if PIECES // 64 % 2 == 1:
        total = s64 + total
    return total


@triton.jit
def refuse_wide_queries(q_ptrs, real, D: tl.constexpr, FORMAT: tl.constexpr, fault_ptr):
    refused = tl.zeros([q_ptrs.shape[0], PIECE], tl.int1)
    for first in tl.range(0, D, PIECE):
        d = first + tl.arange(0, PIECE)
        q = tl.load(q_ptrs[:, None] + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)
        refused |= in_range(as_operand(q, FORMAT), FORMAT) == 0
    fault_where(fault_ptr, BAD_QUERY, refused)


@triton.jit
def wide_scores(rows, sequence, positions, keys, tables, logits, num_pages, window, zero, fault_ptr, D):
    """s [M, N] of a tile's rows at `positions` [N], -inf where not kept; see key_cells and logits_of."""
    cells, readable = key_cells(sequence, positions, keys, tables, num_pages, fault_ptr)
    score = wide_dots(rows[0], keys.ptr, rows[1], cells, readable, zero, D, keys.FORMAT)
    s, kept = logits_of(score, rows, positions, readable, logits, window, keys.FORMAT)
    fault_where(fault_ptr, BAD_SCORE, kept & ((s <= LARGEST_F32) == 0))
    return tl.where(kept, s, NEG_INF)


@triton.jit
def row_extras(logits, q_heads, real):
    """(slopes, sinks) of rows [M]: 0 and -inf where the call has none."""
    slopes = tl.zeros(q_heads.shape, tl.float32)
    sinks = tl.full(q_heads.shape, NEG_INF, tl.float32)
    if logits.slopes_ptr is not None:
        slopes = tl.load(logits.slopes_ptr + q_heads, mask=real, other=0.0)
    if logits.sinks_ptr is not None:
        sinks = tl.load(logits.sinks_ptr + q_heads, mask=real, other=NEG_INF)
    return slopes, sinks
