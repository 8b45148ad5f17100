"""Sequences that wait for a slot and pages, in order."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from samebits.core.errors import BadInput
from samebits.scheduler.request import FINISHED, WAITING, Sequence


class WaitingQueue:
    """A heap, the one to be served first in front. Those that ended leave it when they come up, or are many."""

    def __init__(self) -> None:
        self._heap: list[Sequence] = []
        self.count = 0  # of those that wait

    def add(self, sequence: Sequence) -> None:
        sequence.state = WAITING
        self.count += 1
        heappush(self._heap, sequence)

    def first(self) -> Sequence | None:
        while self._heap and self._heap[0].state != WAITING:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def take_first(self) -> None:
        """It is admitted."""
        heappop(self._heap)
        self.count -= 1

    def set_first_aside(self) -> Sequence:
        """It lets others pass, and waits on: `put_back` follows."""
        return heappop(self._heap)

    def put_back(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            heappush(self._heap, sequence)

    def end(self, sequence: Sequence) -> None:
        """One that waits no longer, and never will."""
        sequence.state = FINISHED
        self.count -= 1
        if len(self._heap) > 2 * self.count:  # else those behind a long wait would pile up
            self._heap = [s for s in self._heap if s.state == WAITING]
            heapify(self._heap)

    def check_integrity(self) -> None:
        """BadInput where the count is wrong."""
        found = sum(s.state == WAITING for s in self._heap)
        if found != self.count:
            raise BadInput("scheduler", "waiting", found, str(self.count))
