"""What kernels over sequences with slots share: where a sequence's tokens lie, its slot, its first position.

Sequences are rows of `qo_indptr` and `slots`. What does not describe a sequence becomes a fault, and one without tokens.
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
