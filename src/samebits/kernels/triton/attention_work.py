"""How a fixed number of programs share ragged work: items are found on the device, from the lengths."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention_common import CUT, sequences


@triton.jit
def first_cut(length, window, WINDOW: tl.constexpr):
    """The first cut that the last query of a sequence looks at."""
    if WINDOW:
        return tl.maximum(length - 1 - window, 0) // CUT
    return length * 0


@triton.jit
def decode_cuts(rows, length, window, WINDOW: tl.constexpr):
    """Cuts that a sequence with one query looks at; 0 for every other sequence."""
    return tl.where(rows == 1, (length + CUT - 1) // CUT - first_cut(length, window, WINDOW), 0)


@triton.jit
def decode_share(
    qo_ptr,
    last_ptr,
    indptr_ptr,
    num_seqs,
    num_entries,
    num_tokens,
    page_size,
    window,
    per_cut,
    fault_ptr,
    TABLE: tl.constexpr,
    WINDOW: tl.constexpr,
    SEQ_BLOCK: tl.constexpr,
):
    """This program's items: (first, stop, sequence of the first, that sequence's first item).

    A sequence with one query has per_cut items for each of its cuts; sequences follow each other.
    """
    total = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        _, rows, _, length = sequences(
            at,
            at < num_seqs,
            qo_ptr,
            last_ptr,
            indptr_ptr,
            num_entries,
            num_tokens,
            page_size,
            fault_ptr,
            TABLE,
        )
        total += tl.sum(decode_cuts(rows, length, window, WINDOW), axis=0)
        start += SEQ_BLOCK
    share = tl.cdiv(total * per_cut, tl.num_programs(0))
    first = tl.program_id(0) * share
    stop = tl.minimum(first + share, total * per_cut)
    seq = 0
    base = 0
    before = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        _, rows, _, length = sequences(
            at,
            at < num_seqs,
            qo_ptr,
            last_ptr,
            indptr_ptr,
            num_entries,
            num_tokens,
            page_size,
            fault_ptr,
            TABLE,
        )
        ends = before + tl.cumsum(decode_cuts(rows, length, window, WINDOW), axis=0) * per_cut
        passed = (ends <= first) & (at < num_seqs)
        seq += tl.sum(passed.to(tl.int32), axis=0)
        base = tl.maximum(base, tl.max(tl.where(passed, ends, 0), axis=0))
        before = tl.max(ends, axis=0)
        start += SEQ_BLOCK
    return first, stop, seq, base


@triton.jit
def query_tiles(rows, QUERIES: tl.constexpr):
    """Tiles of a sequence with several queries; 0 for every other sequence."""
    return tl.where(rows > 1, (rows + QUERIES - 1) // QUERIES, 0)


@triton.jit
def tile_total(
    qo_ptr,
    last_ptr,
    indptr_ptr,
    num_seqs,
    num_entries,
    num_tokens,
    page_size,
    fault_ptr,
    QUERIES: tl.constexpr,
    TABLE: tl.constexpr,
    SEQ_BLOCK: tl.constexpr,
):
    """Tiles of all sequences."""
    total = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        _, rows, _, _ = sequences(
            at, at < num_seqs, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        total += tl.sum(query_tiles(rows, QUERIES), axis=0)
        start += SEQ_BLOCK
    return total


@triton.jit
def tile_item(
    nth,
    qo_ptr,
    last_ptr,
    indptr_ptr,
    num_seqs,
    num_entries,
    num_tokens,
    page_size,
    fault_ptr,
    QUERIES: tl.constexpr,
    TABLE: tl.constexpr,
    SEQ_BLOCK: tl.constexpr,
):
    """(sequence, its tile) of the nth tile of all."""
    seq = 0
    base = 0
    before = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        _, rows, _, _ = sequences(
            at, at < num_seqs, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        ends = before + tl.cumsum(query_tiles(rows, QUERIES), axis=0)
        passed = (ends <= nth) & (at < num_seqs)
        seq += tl.sum(passed.to(tl.int32), axis=0)
        base = tl.maximum(base, tl.max(tl.where(passed, ends, 0), axis=0))
        before = tl.max(ends, axis=0)
        start += SEQ_BLOCK
    return seq, nth - base
