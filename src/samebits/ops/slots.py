"""Ragged batches whose sequences keep a state each, in a slot: what ops on them share, checks first.

A step computes positions first, first + 1, ... of every sequence. A boundary is a multiple of 16 positions, a chunk
lies between two: states are those at the last boundary, and what came since then lies beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from samebits.core.errors import BadInput
from samebits.ops.ragged import check_index_range, check_indptr
from samebits.ops.record import INDEX, STATES, Input

CHUNK = 16
QO_INDPTR = Input("qo_indptr", "B+1", INDEX, "tokens of sequence b: qo_indptr[b] .. qo_indptr[b+1] - 1")
POSITIONS = Input("positions", "T", INDEX, "position of each token; consecutive in a sequence, 0 starts from nothing")
SLOTS = Input("slots", "B", INDEX, "slot of each sequence; no two sequences with tokens share one")


def state_input(name: str, dims: str, doc: str) -> Input:
    """Memory with a place for every slot, updated in place."""
    return Input(name, dims, STATES, doc, raw=True)


@dataclass(frozen=True)
class Run:
    """Tokens of one sequence in a step: rows of the batch, its slot, and the position of the first."""

    rows: slice
    slot: int
    first: int

    @property
    def count(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def stop(self) -> int:
        """The position after the last."""
        return self.first + self.count

    def pieces(self) -> Iterator[slice]:
        """The rows of what lies in each chunk."""
        at = self.first
        while at < self.stop:
            end = min(self.stop, at - at % CHUNK + CHUNK)
            row = self.rows.start + at - self.first
            yield slice(row, row + end - at)
            at = end


def runs(qo_indptr: np.ndarray, positions: np.ndarray, slots: np.ndarray) -> list[Run]:
    """The sequences that have tokens."""
    bounds = zip(qo_indptr[:-1].tolist(), qo_indptr[1:].tolist(), slots.tolist(), strict=True)
    return [Run(slice(start, stop), slot, int(positions[start])) for start, stop, slot in bounds if stop > start]


def check_runs(op: str, qo_indptr: np.ndarray, positions: np.ndarray, slots: np.ndarray, num_slots: int) -> None:
    """BadInput where ranges, positions or slots do not describe sequences with a slot each."""
    check_indptr(op, "qo_indptr", qo_indptr, len(positions))
    used = slots[np.diff(qo_indptr) > 0]
    check_index_range(op, "slots", used, num_slots)
    taken, counts = np.unique(used, return_counts=True)
    if (counts > 1).any():
        raise BadInput(op, "slots", f"slot {taken[counts > 1][0]} twice", "a slot of its own for every sequence")
    for run in runs(qo_indptr, positions, slots):
        here = positions[run.rows]
        if run.first < 0 or (here != run.first + np.arange(run.count)).any():
            given = f"{here[:4].tolist()} ... in the sequence of slot {run.slot}"
            raise BadInput(op, "positions", given, "0 or more, each one more than the one before")
