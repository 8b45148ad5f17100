"""Which segment a row or a tile of rows belongs to, found on the device; and what layouts of experts' pairs refuse.

Segment s is the places indptr[s] .. indptr[s + 1] - 1. Entries are never trusted: what they lead to is compared with
the number of rows before anything is read there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.rows import fault_where

NO_ENTRY = tl.constexpr(2**31 - 1)  # above every place


def layout_faults(op: str) -> dict[str, int]:
    """The faults of an op that takes the layout of experts' pairs, as kernels that check them take them."""
    needed = "entries that never fall, from 0 to the number of pairs"
    return {
        "BAD_INDPTR": fault(op, "seg_indptr", "entries that fall or lie outside", needed),
        "BAD_PAIR": fault(op, "pairs", "a number of no pair", "0 .. number of pairs - 1"),
    }


@triton.jit
def segment_tile(indptr_ptr, tile, SEGMENTS: tl.constexpr, BOUND: tl.constexpr, BT: tl.constexpr):
    """Tile `tile` of all segments cut into tiles of BT rows: (segment, first row, end); SEGMENTS when there is none."""
    s = tl.arange(0, BOUND)
    start = tl.load(indptr_ptr + s, mask=s < SEGMENTS, other=0)
    stop = tl.load(indptr_ptr + s + 1, mask=s < SEGMENTS, other=0)
    count = tl.maximum(stop - start + BT - 1, 0) // BT
    ends = tl.cumsum(count)
    segment = tl.sum(((ends <= tile) & (s < SEGMENTS)).to(tl.int32))
    mine = s == segment
    before = tl.sum(tl.where(mine, ends - count, 0))
    first = tl.sum(tl.where(mine, start, 0)) + (tile - before) * BT
    return segment, first, tl.sum(tl.where(mine, stop, 0))


@triton.jit
def segment_of(indptr_ptr, place, SEGMENTS: tl.constexpr, BOUND: tl.constexpr):
    """The segment that a place lies in; SEGMENTS when there is none."""
    s = tl.arange(0, BOUND)
    stop = tl.load(indptr_ptr + s + 1, mask=s < SEGMENTS, other=NO_ENTRY)
    return tl.sum((stop <= place).to(tl.int32))


@triton.jit
def check_indptr(indptr_ptr, fault_ptr, total, SEGMENTS: tl.constexpr, BOUND: tl.constexpr, BAD_INDPTR: tl.constexpr):
    """A fault where entries fall, or do not lead from 0 to the total."""
    s = tl.arange(0, BOUND)
    start = tl.load(indptr_ptr + s, mask=s < SEGMENTS, other=0)
    stop = tl.load(indptr_ptr + s + 1, mask=s < SEGMENTS, other=0)
    wrong = (stop < start) | ((s == 0) & (start != 0)) | ((s == SEGMENTS - 1) & (stop != total))
    fault_where(fault_ptr, BAD_INDPTR, wrong)


@triton.jit
def known_pairs(pair, inside, num_pairs, fault_ptr, BAD_PAIR: tl.constexpr):
    """Which numbers, of those inside, are pairs; a fault for one that is none."""
    unknown = (pair < 0) | (pair >= num_pairs)
    fault_where(fault_ptr, BAD_PAIR, inside & unknown)
    return inside & (unknown == 0)


@triton.jit
def load_pairs(pairs_ptr, place, inside, num_pairs, fault_ptr, BAD_PAIR: tl.constexpr):
    """(pairs at these places, which of them are inside and are pairs); a fault for a number that is none."""
    pair = tl.load(pairs_ptr + place, mask=inside, other=0)
    return pair, known_pairs(pair, inside, num_pairs, fault_ptr, BAD_PAIR)
