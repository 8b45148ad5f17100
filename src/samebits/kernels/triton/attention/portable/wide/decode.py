"""One query of wide heads: scores of tiles of positions, then sums of values by cuts and pieces of columns.

Every sequence's positions have a range of their own in the scratch, cut into slots; a slot's program finds whose it is.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_SINKS
from samebits.kernels.triton.attention.portable.tile_dots import add_cut
from samebits.kernels.triton.attention.portable.wide.scores import refuse_wide_queries, row_extras, wide_scores
from samebits.kernels.triton.attention.sequences import CUT, RUN, sequences
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.rows import fault_where

AT_ONCE = tl.constexpr(16)


@triton.jit
def first_slot(entry, seq, tables, SIZE: tl.constexpr):
    """Return the number of the first slot of SIZE positions of a sequence, int64."""
    return entry.to(tl.int64) * tables.page_size // SIZE + seq


@triton.jit
def owner_of(slot, tables, num_seqs, SIZE: tl.constexpr, SEQ_BLOCK: tl.constexpr):
    """The sequence whose slots reach from `slot` or before it; -1 for none."""
    count = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        entry = at
        if tables.PAGED:
            entry = tl.load(tables.indptr_ptr + at, mask=at < num_seqs, other=0)
        count += tl.sum(((first_slot(entry, at, tables, SIZE) <= slot) & (at < num_seqs)).to(tl.int32), axis=0)
        start += SEQ_BLOCK
    return count - 1


@triton.jit
def decode_range(rows, length, window, WINDOW: tl.constexpr):
    """(first, low): the position that scores are computed from, a cut's start, and the first that is seen."""
    low = length * 0
    if WINDOW:
        low = tl.maximum(length - 1 - window, 0)
    return low // CUT * CUT, low


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "num_tiles", "window"])
def wide_decode_scores(
    queries, keys, tables, logits, heads, s_ptr, max_ptr, zero, fault_ptr,
    num_tokens, num_seqs, num_entries, num_pages, num_tiles, window,
    M: tl.constexpr, N: tl.constexpr, SEQ_BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """s [part, M, tile, N] and max [part, tile, M]; programs are (tile, part)."""
    slot, part = tl.program_id(0), tl.program_id(1)
    wait_for_previous(CHAINED)
    seq = owner_of(slot, tables, num_seqs, N, SEQ_BLOCK)
    first, rows, entry, length = sequences(
        seq, seq >= 0, tables.qo_ptr, tables.last_ptr, tables.indptr_ptr, num_entries, num_tokens, tables.page_size,
        fault_ptr, tables.PAGED,
    )  # fmt: skip
    start = (slot - first_slot(entry, seq, tables, N)).to(tl.int32) * N
    from_start, _ = decode_range(rows, length, window, logits.WINDOW)
    if (rows == 1) & (start < length) & (start >= from_start):
        row = tl.arange(0, M)
        real = row < heads.HEADS
        q_heads = (part * heads.HEADS + row).to(tl.int64)
        q_ptrs = queries.ptr + first.to(tl.int64) * queries.row + q_heads * queries.head
        if start == from_start:
            refuse_wide_queries(q_ptrs, real, heads.D, keys.FORMAT, fault_ptr)
        slopes, _sinks = row_extras(logits, q_heads, real)
        asked = (q_ptrs, real, slopes, row * 0 + length - 1)
        at = tl.arange(0, N)
        sequence = (entry, length, (part * heads.HEADS // heads.GROUP).to(tl.int64))
        s = wide_scores(asked, sequence, start + at, keys, tables, logits, num_pages, window, zero, fault_ptr, heads.D)
        s_row = s_ptr + (part * M + row).to(tl.int64) * (num_tiles * N) + slot * N
        tl.store(s_row[:, None] + at[None, :], s)
        tl.store(max_ptr + (part.to(tl.int64) * num_tiles + slot) * M + row, tl.max(s, axis=1))


@triton.jit
def largest_of_tiles(max_ptr, tile, stop, M: tl.constexpr):
    """[M]: of the maxima of tiles up to stop - 1."""
    largest = tl.full([M], NEG_INF, tl.float32)
    while tile < stop:
        at = tile + tl.arange(0, AT_ONCE)
        rows = max_ptr + at.to(tl.int64)[None, :] * M + tl.arange(0, M)[:, None]
        largest = tl.maximum(largest, tl.max(tl.load(rows, mask=(at < stop)[None, :], other=NEG_INF), axis=1))
        tile += AT_ONCE
    return largest


@triton.jit(
    do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "num_tiles", "num_slots", "window"]
)
def wide_decode_values(
    values, tables, logits, heads, s_ptr, max_ptr, o_ptr, l_ptr, zero, fault_ptr,
    num_tokens, num_seqs, num_entries, num_pages, num_tiles, num_slots, window,
    M: tl.constexpr, N: tl.constexpr, COLUMNS: tl.constexpr, SEQ_BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """o [part, cut slot, HEADS, V_DIM] and l [part, cut slot, 2, HEADS], the sum of p and the maximum, as decode_join
    reads them; programs are (cut slot, part, piece of COLUMNS columns)."""
    slot, part, piece = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    wait_for_previous(CHAINED)
    seq = owner_of(slot, tables, num_seqs, CUT, SEQ_BLOCK)
    _, rows, entry, length = sequences(
        seq, seq >= 0, tables.qo_ptr, tables.last_ptr, tables.indptr_ptr, num_entries, num_tokens, tables.page_size,
        fault_ptr, tables.PAGED,
    )  # fmt: skip
    cut = (slot - first_slot(entry, seq, tables, CUT)).to(tl.int32) * CUT
    from_start, low = decode_range(rows, length, window, logits.WINDOW)
    if (rows == 1) & (cut < length) & (cut >= from_start):
        row = tl.arange(0, M)
        real = row < heads.HEADS
        _slopes, sinks = row_extras(logits, part * heads.HEADS + row, real)
        fault_where(fault_ptr, BAD_SINKS, (sinks <= LARGEST_F32) == 0)
        tiles = first_slot(entry, seq, tables, N)
        largest = largest_of_tiles(
            max_ptr + part.to(tl.int64) * num_tiles * M, tiles + from_start // N, tiles + tl.cdiv(length, N), M
        )
        largest = tl.maximum(largest, sinks)
        shift = tl.where(largest == NEG_INF, 0.0, largest)
        s_row = s_ptr + (part * M + row).to(tl.int64) * (num_tiles * N) + tiles * N + cut
        column = piece * COLUMNS + tl.arange(0, COLUMNS)
        sequence = (entry, length, (part * heads.HEADS // heads.GROUP).to(tl.int64))
        out, total = add_cut(
            s_row[:, None] + tl.arange(0, RUN)[None, :], sequence, shift, cut, low, tl.minimum(cut + CUT, length),
            column, values, tables, num_pages, zero, fault_ptr, M, heads.V_DIM,
        )  # fmt: skip
        place = part.to(tl.int64) * num_slots + slot
        to = o_ptr + (place * heads.HEADS + row)[:, None] * heads.V_DIM + column[None, :]
        tl.store(to, out, mask=real[:, None] & (column < heads.V_DIM)[None, :])
        if piece == 0:
            l_row = l_ptr + place * 2 * heads.HEADS + row
            tl.store(l_row, tl.max(total, axis=1), mask=real)
            tl.store(l_row + heads.HEADS, largest, mask=real)
