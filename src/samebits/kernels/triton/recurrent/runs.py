"""What kernels over sequences with slots share: where a sequence's tokens lie, its slot, its first position.

Sequences are rows of `qo_indptr` and `slots`. One that these do not describe is a fault, and then has no tokens.
"""

from __future__ import annotations

from typing import TypeAlias

import triton
import triton.language as tl

from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.rows import fault_where
from samebits.ops import slots

CHUNK = tl.constexpr(slots.CHUNK)
SEQ_BLOCK = tl.constexpr(128)  # sequences looked at together
BATCH_SIZES = ("num_seqs", "num_tokens", "num_slots")  # arguments of kernels that must not make a kernel of their own
Faults: TypeAlias = tuple[int, int, int]


def run_faults(op: str) -> Faults:
    """Numbers of the reasons that `run_of` gives: token ranges, slots, positions."""
    return (
        fault(op, "qo_indptr", "ranges that fall or leave the batch", "0 .. tokens, not falling"),
        fault(op, "slots", "a slot that is not there", "0 .. slots - 1"),
        fault(op, "positions", "positions that do not follow each other from 0 or more", "each one more than the last"),
    )


@triton.jit
def run_of(b, qo_ptr, positions_ptr, slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS: tl.constexpr):
    """(first row, tokens, slot as int64, first position) of sequence b; no tokens where one of them is refused."""
    start = tl.load(qo_ptr + b)
    count = tl.load(qo_ptr + b + 1) - start
    good = (start >= 0) & (count >= 0) & (start + count <= num_tokens)
    fault_where(fault_ptr, FAULTS[0], good == 0)
    good &= count > 0
    slot = tl.load(slots_ptr + b)
    first = tl.load(positions_ptr + start, mask=good, other=0)
    last = tl.load(positions_ptr + start + count - 1, mask=good, other=0)
    known = (slot >= 0) & (slot < num_slots)
    follows = (first >= 0) & (last == first + count - 1)
    fault_where(fault_ptr, FAULTS[1], good & (known == 0))
    fault_where(fault_ptr, FAULTS[2], good & (follows == 0))
    return start, tl.where(good & known & follows, count, 0), slot.to(tl.int64), first


@triton.jit
def piece_of(start, b, chunk):
    """The number of a sequence's chunk among all of a step, int64: n tokens lie in at most n // CHUNK + 2 chunks."""
    return (start // CHUNK + 2 * b + chunk).to(tl.int64)


def num_pieces(num_tokens: int, num_seqs: int) -> int:
    """As many as there may be."""
    return num_tokens // slots.CHUNK + 2 * num_seqs


@triton.jit
def nth_long(nth, qo_ptr, num_seqs):
    """The nth sequence of several tokens; num_seqs where there are fewer."""
    found, before, at = num_seqs, 0, 0
    while at < num_seqs:
        b = at + tl.arange(0, SEQ_BLOCK)
        tokens = tl.load(qo_ptr + b + 1, mask=b < num_seqs, other=0) - tl.load(qo_ptr + b, mask=b < num_seqs, other=0)
        is_long = (tokens > 1).to(tl.int32)
        rank = before + tl.cumsum(is_long, axis=0)
        found = tl.minimum(found, tl.min(tl.where((is_long != 0) & (rank == nth + 1), b, num_seqs), axis=0))
        before += tl.sum(is_long, axis=0)
        at += SEQ_BLOCK
    return found


@triton.jit
def nth_chunk(nth, qo_ptr, positions_ptr, num_seqs, num_tokens):
    """(sequence, number of its chunk) of the nth chunk of all sequences of several tokens; (num_seqs, _) beyond."""
    found, base, before, at = num_seqs, 0, 0, 0
    while at < num_seqs:
        b = at + tl.arange(0, SEQ_BLOCK)
        start = tl.load(qo_ptr + b, mask=b < num_seqs, other=0)
        tokens = tl.load(qo_ptr + b + 1, mask=b < num_seqs, other=0) - start
        is_long = (tokens > 1) & (start >= 0) & (start < num_tokens)
        first = tl.load(positions_ptr + start, mask=is_long, other=0)
        chunks = tl.where(is_long, (first % CHUNK + tokens + CHUNK - 1) // CHUNK, 0)
        ends = before + tl.cumsum(chunks, axis=0)
        owns = (ends > nth) & (ends - chunks <= nth)
        found = tl.minimum(found, tl.min(tl.where(owns, b, num_seqs), axis=0))
        base = tl.maximum(base, tl.max(tl.where(owns, ends - chunks, 0), axis=0))
        before = tl.max(ends, axis=0)
        at += SEQ_BLOCK
    return found, nth - base


@triton.jit
def chunk_rows(start, count, first, nth):
    """Of chunk `nth` of a run: (its first row of this step, the row after its last, the batch's row of its row 0).

    There is no such chunk where the second is not above the first.
    """
    behind = nth * CHUNK - first % CHUNK  # of the run's first token: the chunk's row 0; at most the batch's tokens
    low = tl.maximum(-behind, 0)
    high = tl.minimum(count - behind, CHUNK)
    return low, high, start.to(tl.int64) + behind
