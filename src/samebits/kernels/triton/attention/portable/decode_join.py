"""The last step of one-query attention over 16-bit caches: the sum of a row's cuts, and rows that nobody asked for."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_SINKS, BAD_VALUE
from samebits.kernels.triton.attention.portable.work import decode_tiles
from samebits.kernels.triton.attention.sequences import CUT, RUN, refuse_counts, sequences
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import LOG2E, exp, log2, recip
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.rows import fault_where, store_narrow
from samebits.kernels.triton.lib.settling import settle

AT_ONCE = tl.constexpr(16)


@triton.jit
def add_cuts(o_ptr, l_ptr, cut, stop, HEADS: tl.constexpr, V_DIM: tl.constexpr, V_PAD: tl.constexpr):
    """(out [V_PAD], sum of p [1]) of one head: its cuts up to stop - 1 in order."""
    column = tl.arange(0, V_PAD)
    one = tl.arange(0, 1)
    out = tl.zeros([V_PAD], tl.float32)
    total = tl.zeros([1], tl.float32)
    while cut < stop:
        o = ()
        p = ()
        for i in tl.static_range(AT_ONCE):  # all on their way before the first is used
            there = cut + i < stop
            at = (cut + i).to(tl.int64) * HEADS
            o += (tl.load(o_ptr + at * V_DIM + column, mask=there & (column < V_DIM), other=0.0),)
            p += (tl.load(l_ptr + at * 2 + one, mask=there & (one == 0), other=0.0),)
        for i in tl.static_range(AT_ONCE):
            out = out + o[i]
            total = total + p[i]
        cut += AT_ONCE
    return out, total


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_slots", "window"])
def decode_join(
    o_ptr, l_ptr, out_ptr, lse_ptr, qo_ptr, last_ptr, indptr_ptr, sinks_ptr, fault_ptr,
    num_tokens, num_seqs, num_entries, num_slots, window,
    page_size: tl.constexpr, TABLE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    LSE: tl.constexpr, HEADS: tl.constexpr, NUM_PARTS: tl.constexpr, V_DIM: tl.constexpr, V_PAD: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """Grid (sequences or more, heads): rows of one-query sequences, and zeros in rows beyond the last sequence."""
    seq, number = tl.program_id(0), tl.program_id(1)
    row, rows, entry, length = sequences(
        seq, seq < num_seqs, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
    )
    used = tl.load(qo_ptr + num_seqs)
    wait_for_previous(CHAINED)
    refuse_counts(rows, length, fault_ptr, CAUSAL)
    column = tl.arange(0, V_PAD)
    one = tl.arange(0, 1)
    if rows == 1:
        first, tiles = decode_tiles(rows, length, window, WINDOW)
        cut = first // (CUT // RUN)
        slot = (number // HEADS).to(tl.int64) * num_slots + entry.to(tl.int64) * page_size // CUT + seq
        o_base = o_ptr + (slot * HEADS + number % HEADS) * V_DIM
        l_base = l_ptr + slot * 2 * HEADS + number % HEADS
        out, total = add_cuts(o_base, l_base, cut, tl.cdiv(length, CUT), HEADS, V_DIM, V_PAD)
        if SINKS or LSE:
            at = l_base + (cut * 2 + 1) * HEADS + one
            largest = tl.load(at, mask=(tiles > 0) & (one == 0), other=NEG_INF)
        if SINKS:
            sink = tl.load(sinks_ptr + number + one)
            fault_where(fault_ptr, BAD_SINKS, (sink <= LARGEST_F32) == 0)
            largest = tl.maximum(largest, sink)
            total = total + exp(sink - tl.where(largest == NEG_INF, 0.0, largest))
        seen = total > 0.0
        out = out * tl.where(seen, recip(tl.where(seen, total, 1.0)), 0.0)
        fault_where(fault_ptr, BAD_VALUE, (tl.abs(out) <= LARGEST_F32) == 0)
        to = row.to(tl.int64) * (NUM_PARTS * HEADS) + number
        store_narrow(out_ptr + to * V_DIM + column, out, column < V_DIM)
        if LSE:
            lse = largest * LOG2E + log2(tl.where(seen, total, 1.0))
            tl.store(lse_ptr + to + one, settle(tl.where(seen, lse, NEG_INF)))
    token = tl.maximum(used, 0) + seq
    while token < num_tokens:
        to = token.to(tl.int64) * (NUM_PARTS * HEADS) + number
        store_narrow(out_ptr + to * V_DIM + column, tl.zeros([V_PAD], tl.float32), column < V_DIM)
        if LSE:
            tl.store(lse_ptr + to + one, tl.full([1], NEG_INF, tl.float32))
        token += tl.num_programs(0)
