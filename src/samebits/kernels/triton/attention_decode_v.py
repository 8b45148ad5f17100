"""V pass of one-query attention over 16-bit caches: P from the scores, one partial sum a cut; then the cuts' sum."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention_args import BAD_SINKS, BAD_VALUE
from samebits.kernels.triton.attention_common import (
    CUT,
    LARGEST_F32,
    NEG_INF,
    RUN,
    as_operand,
    page_of,
    refuse_counts,
    sequence_of,
    sequences,
    store_rounded,
)
from samebits.kernels.triton.attention_scores import chain16
from samebits.kernels.triton.attention_work import decode_cuts, decode_share, first_cut
from samebits.kernels.triton.chaining import let_next_start, wait_for_previous
from samebits.kernels.triton.elementary import LOG2E, exp, log2, recip
from samebits.kernels.triton.rows import fault_where


@triton.jit
def row_maximum(max_ptr, sinks_ptr, part, slot, cuts, SINKS: tl.constexpr, HEADS: tl.constexpr, H_PAD: tl.constexpr):
    """[H_PAD]: the maximum over all cuts of a part from its cut slot on, and the sink."""
    heads = tl.arange(0, H_PAD)
    real = heads < HEADS
    largest = tl.full([H_PAD], NEG_INF, tl.float32)
    if SINKS:
        largest = tl.load(sinks_ptr + part * HEADS + heads, mask=real, other=NEG_INF)
    at = 0
    while at < cuts:
        nth = at + tl.arange(0, RUN)
        valid = (nth < cuts)[:, None] & real[None, :]
        m = tl.load(max_ptr + (slot + nth)[:, None] * HEADS + heads[None, :], mask=valid, other=NEG_INF)
        largest = tl.maximum(largest, tl.max(m, axis=0))
        at += RUN
    return largest


@triton.jit
def write_weights(s_ptr, shift, first, length, FORMAT: tl.constexpr, HEADS: tl.constexpr, H_PAD: tl.constexpr):
    """P of a cut in the place of its scores; returns the sum of p [H_PAD] of the cut, in stream order.

    Every thread needs every P and registers cannot be indexed, so they go through memory.
    """
    run = tl.arange(0, RUN)[None, :]
    heads = tl.arange(0, H_PAD)[:, None]
    total = tl.zeros([H_PAD, RUN], tl.float32)
    for i in tl.static_range(RUN):
        position = first + run * RUN + i
        valid = (position < length) & (heads < HEADS)
        at = s_ptr + position * HEADS + heads
        p = exp(tl.load(at, mask=valid, other=NEG_INF) - shift[:, None])
        total = total + p
        tl.store(at, as_operand(p, FORMAT), mask=valid)
    tl.debug_barrier()
    return tl.reshape(chain16(tl.reshape(total, [H_PAD, 1, RUN])), [H_PAD])


@triton.jit
def zeros_each(ROWS: tl.constexpr, COLUMNS: tl.constexpr, COUNT: tl.constexpr):
    """COUNT accumulators."""
    each = ()
    for _ in tl.static_range(COUNT):
        each += (tl.zeros([ROWS, COLUMNS], tl.float32),)
    return each


@triton.jit
def rows_in_order(x, total, ROWS: tl.constexpr):
    """total [1, C] + x[0] + x[1] + ..., for x [ROWS, C]."""
    columns: tl.constexpr = x.shape[1]
    rows = (x,)
    for level in tl.static_range(5):
        if ROWS >> level > 1:
            finer = ()
            for i in tl.static_range(2**level):
                halves = tl.reshape(rows[i], [2, ROWS >> (level + 1), columns])
                low, high = tl.split(tl.permute(halves, (1, 2, 0)))
                finer += (low, high)
            rows = finer
    for i in tl.static_range(ROWS):
        total = total + rows[i]
    return total


@triton.jit(
    do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "num_cells", "num_slots", "window"]
)
def decode_values(
    v_ptr,
    s_ptr,
    max_ptr,
    o_ptr,
    l_ptr,
    qo_ptr,
    last_ptr,
    indptr_ptr,
    indices_ptr,
    sinks_ptr,
    fault_ptr,
    num_tokens,
    num_seqs,
    num_entries,
    num_pages,
    num_cells,
    num_slots,
    v_page,
    v_slot,
    v_head,
    window,
    page_size: tl.constexpr,
    TABLE: tl.constexpr,
    WINDOW: tl.constexpr,
    SINKS: tl.constexpr,
    FORMAT: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    H_PAD: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    V_DIM: tl.constexpr,
    V_PAD: tl.constexpr,
    WIDE: tl.constexpr,
    UNROLL: tl.constexpr,
    SEQ_BLOCK: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """o [part, cut slot, HEADS, V_DIM] and l [part, cut slot, HEADS]: WIDE runs of a cut side by side."""
    let_next_start(CHAINED)
    item, stop, seq, base = decode_share(
        qo_ptr,
        last_ptr,
        indptr_ptr,
        num_seqs,
        num_entries,
        num_tokens,
        page_size,
        window,
        NUM_PARTS,
        fault_ptr,
        TABLE,
        WINDOW,
        SEQ_BLOCK,
    )
    wait_for_previous(CHAINED)
    column = tl.arange(0, V_PAD)[None, :]
    heads = tl.arange(0, H_PAD)
    while item < stop:
        _, rows, entry, length = sequences(
            seq, True, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        cuts = decode_cuts(rows, length, window, WINDOW)
        if item - base >= cuts * NUM_PARTS:
            base += cuts * NUM_PARTS
            seq += 1
        else:
            part = (item - base) // cuts
            start = first_cut(length, window, WINDOW)
            cut = start + (item - base) % cuts
            slot_base = part.to(tl.int64) * num_slots + entry * page_size // CUT + seq
            largest = row_maximum(max_ptr, sinks_ptr, part, slot_base + start, cuts, SINKS, HEADS, H_PAD)
            shift = tl.where(largest == NEG_INF, 0.0, largest)
            s_base = s_ptr + (part.to(tl.int64) * num_cells + entry * page_size) * HEADS
            total = write_weights(s_base, shift, cut * CUT, length, FORMAT, HEADS, H_PAD)
            tl.store(l_ptr + (slot_base + cut) * HEADS + heads, total, mask=heads < HEADS)
            out = zeros_each(1, V_PAD, HEADS)
            for at in tl.range(0, CUT, WIDE * RUN):
                run = cut * CUT + at + tl.arange(0, WIDE) * RUN
                page, slot, exists = page_of(
                    indices_ptr, entry, run, run < length, page_size, num_pages, fault_ptr, TABLE
                )
                cell = page * v_page + slot * v_slot + part * HEADS // GROUP * v_head
                runs = zeros_each(WIDE, V_PAD, HEADS)
                for group in tl.range(0, RUN, UNROLL):
                    for j in tl.static_range(UNROLL):
                        i = group + j
                        kept = exists & (run + i < length)
                        if WINDOW:
                            kept &= run + i >= length - 1 - window
                        v = tl.load(
                            v_ptr + (cell + i * v_slot)[:, None] + column,
                            mask=kept[:, None] & (column < V_DIM),
                            other=0.0,
                        ).to(tl.float32)
                        added = ()
                        for g in tl.static_range(HEADS):
                            p = tl.load(s_base + (run + i) * HEADS + g, mask=kept, other=0.0)
                            added += (tl.fma(p[:, None], v, runs[g]),)
                        runs = added
                joined = ()
                for g in tl.static_range(HEADS):
                    joined += (rows_in_order(runs[g], out[g], WIDE),)
                out = joined
            for g in tl.static_range(HEADS):
                to = o_ptr + ((slot_base + cut) * HEADS + g) * V_DIM + column
                tl.store(to, out[g], mask=column < V_DIM)
            item += 1


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_slots", "window"])
def decode_join(
    max_ptr,
    o_ptr,
    l_ptr,
    out_ptr,
    lse_ptr,
    qo_ptr,
    last_ptr,
    indptr_ptr,
    sinks_ptr,
    fault_ptr,
    num_tokens,
    num_seqs,
    num_entries,
    num_slots,
    window,
    page_size: tl.constexpr,
    TABLE: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SINKS: tl.constexpr,
    LSE: tl.constexpr,
    HEADS: tl.constexpr,
    H_PAD: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    V_DIM: tl.constexpr,
    V_PAD: tl.constexpr,
    SEQ_BLOCK: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Grid (rows of q, parts): rows of one-query sequences, and zeros in rows beyond the last sequence."""
    let_next_start(CHAINED)
    token, part = tl.program_id(0), tl.program_id(1)
    seq = sequence_of(token, qo_ptr, num_seqs, SEQ_BLOCK)
    _, rows, entry, length = sequences(
        seq, seq < num_seqs, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
    )
    wait_for_previous(CHAINED)
    refuse_counts(rows, length, fault_ptr, CAUSAL)
    if (rows == 1) | (seq == num_seqs):
        heads = tl.arange(0, H_PAD)
        column = tl.arange(0, V_PAD)[None, :]
        cuts = decode_cuts(rows, length, window, WINDOW)
        slot = part.to(tl.int64) * num_slots + entry * page_size // CUT + seq + first_cut(length, window, WINDOW)
        out = tl.zeros([H_PAD, V_PAD], tl.float32)
        total = tl.zeros([H_PAD], tl.float32)
        at = 0
        while at < cuts:
            o = o_ptr + ((slot + at) * HEADS + heads[:, None]) * V_DIM + column
            out = out + tl.load(o, mask=(heads < HEADS)[:, None] & (column < V_DIM), other=0.0)
            total = total + tl.load(l_ptr + (slot + at) * HEADS + heads, mask=heads < HEADS, other=0.0)
            at += 1
        largest = row_maximum(max_ptr, sinks_ptr, part, slot, cuts, SINKS, HEADS, H_PAD)
        if SINKS:
            sinks = tl.load(sinks_ptr + part * HEADS + heads, mask=heads < HEADS, other=NEG_INF)
            fault_where(fault_ptr, BAD_SINKS, (sinks <= LARGEST_F32) == 0)
            last = exp(sinks - tl.where(largest == NEG_INF, 0.0, largest))
            total = total + tl.where(seq < num_seqs, last, 0.0)
        seen = total > 0.0
        out = out * tl.where(seen, recip(tl.where(seen, total, 1.0)), 0.0)[:, None]
        fault_where(fault_ptr, BAD_VALUE, (tl.abs(out) <= LARGEST_F32) == 0)
        to = token.to(tl.int64) * (NUM_PARTS * HEADS) + part * HEADS + heads
        real = heads < HEADS
        store_rounded(out_ptr + to[:, None] * V_DIM + column, out, real[:, None] & (column < V_DIM))
        if LSE:
            lse = largest * LOG2E + log2(tl.where(seen, total, 1.0))
            tl.store(lse_ptr + to, tl.where(seen, lse, NEG_INF), mask=real)
