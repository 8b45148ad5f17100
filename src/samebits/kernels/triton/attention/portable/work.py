"""How a fixed number of programs share ragged work: items are found on the device, from the lengths."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.sequences import CUT, RUN, sequences


@triton.jit
def decode_tiles(rows, length, window, WINDOW: tl.constexpr):
    """(first, number) of the tiles of RUN positions that a sequence with one query looks at; none of any other."""
    first = length * 0
    if WINDOW:
        first = tl.maximum(length - 1 - window, 0) // RUN
    return first, tl.where(rows == 1, (length + RUN - 1) // RUN - first, 0)


@triton.jit
def decode_cuts(first, tiles):
    """Cuts that these tiles of a sequence lie in."""
    return tl.where(tiles > 0, (first + tiles + CUT // RUN - 1) // (CUT // RUN) - first // (CUT // RUN), 0)


@triton.jit
def decode_share(
    qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries, num_tokens, page_size, window, fault_ptr,
    NUM_PARTS: tl.constexpr, CUTS: tl.constexpr, TABLE: tl.constexpr, WINDOW: tl.constexpr, SEQ_BLOCK: tl.constexpr,
):  # fmt: skip
    """This program's items, of all one-query sequences' tiles (or, with CUTS, cuts) times NUM_PARTS.

    (first, stop, sequence of the first, that sequence's first item, tiles of all sequences before it, tiles of all).
    Items are numbered by sequence, part of the heads and position.
    """
    total = 0
    all_tiles = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        _, rows, _, length = sequences(
            at, at < num_seqs, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        first_tile, tiles = decode_tiles(rows, length, window, WINDOW)
        items = decode_cuts(first_tile, tiles) if CUTS else tiles
        total += tl.sum(items, axis=0) * NUM_PARTS
        all_tiles += tl.sum(tiles, axis=0)
        start += SEQ_BLOCK
    share = tl.cdiv(total, tl.num_programs(0))
    first = tl.program_id(0) * share
    seq = 0
    base = 0
    tiles_before = 0
    before = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        _, rows, _, length = sequences(
            at, at < num_seqs, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        first_tile, tiles = decode_tiles(rows, length, window, WINDOW)
        items = decode_cuts(first_tile, tiles) if CUTS else tiles
        ends = before + tl.cumsum(items, axis=0) * NUM_PARTS
        passed = (ends <= first) & (at < num_seqs)
        seq += tl.sum(passed.to(tl.int32), axis=0)
        base = tl.maximum(base, tl.max(tl.where(passed, ends, 0), axis=0))
        tiles_before += tl.sum(tl.where(passed, tiles, 0), axis=0)
        before = tl.max(ends, axis=0)
        start += SEQ_BLOCK
    return first, tl.minimum(first + share, total), seq, base, tiles_before, all_tiles


@triton.jit
def query_tiles(rows, QUERIES: tl.constexpr):
    """Tiles of a sequence with several queries; 0 for every other sequence."""
    return tl.where(rows > 1, (rows + QUERIES - 1) // QUERIES, 0)


@triton.jit
def tile_total(
    qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries, num_tokens, page_size, fault_ptr, QUERIES: tl.constexpr,
    TABLE: tl.constexpr, SEQ_BLOCK: tl.constexpr,
):  # fmt: skip
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
    nth, qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries, num_tokens, page_size, fault_ptr, QUERIES: tl.constexpr,
    TABLE: tl.constexpr, SEQ_BLOCK: tl.constexpr,
):  # fmt: skip
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
