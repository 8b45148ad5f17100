"""Pages of layers that look back over a window only, beside those of layers that look back over everything.

A sequence takes such pages as its steps reach them and gives back those that left the window. Taking never fails: the
pool holds what all slots can hold at once (`pages_for_window`), or as many pages as the first group has, of which a
sequence never holds fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits.cache.pages import NULL_PAGE, PageCopy, PagePool, Prefix


def pages_for_window(window: int, page_size: int, max_sequences: int, max_tokens: int, num_pages: int) -> int:
    """Pages, the null page among them, that suffice for all slots and a step of so many tokens.

    A slot holds the pages that a window and a step's tokens touch, and one more while it copies a shared one.
    """
    per_sequence = -(-window // page_size) + 4
    return min(num_pages, 1 + max_sequences * per_sequence + -(-max_tokens // page_size))


class WindowPages:
    """One group: tables of the same shape as the first group's, entries outside the window null."""

    def __init__(self, window: int, num_pages: int, page_size: int, tables_shape: tuple[int, int]) -> None:
        self.window, self.page_size, self.pool = window, page_size, PagePool(num_pages)
        self.tables = np.zeros(tables_shape, np.int32)
        count = tables_shape[0]
        self._first = np.zeros(count, np.int32)  # entries before it are given back
        self._stop = np.zeros(count, np.int32)  # entries from it on are not taken yet
        self._num_noted = np.zeros(count, np.int32)
        self._is_forked = np.zeros(count, bool)  # the last page may be another's too

    def clear(self) -> None:
        """Close all sequences and forget all prefixes, in whatever state they are."""
        self.pool.clear()
        self._first[:] = self._stop[:] = 0

    @property
    def num_used(self) -> int:
        """Pages that some sequence holds."""
        return self.pool.num_pages - 1 - self.pool.num_free

    def _live(self, num_computed: int) -> int:
        """The first page that a query at position `num_computed` or later reads."""
        return max(0, num_computed - self.window + 1) // self.page_size

    def resumable(self, prefixes: Sequence[Prefix], count: int) -> int:
        """After how many full pages, of the first `count`, a sequence can go on: those its window needs are here."""
        run = 0  # pages found one after another, up to where we are
        best = 0
        for index in range(count):
            run = run + 1 if self.pool.find(prefixes[index]) is not None else 0
            if run >= index + 1 - self._live((index + 1) * self.page_size):
                best = index + 1
        return best

    def open(self, slot: int, prefixes: Sequence[Prefix], count: int) -> None:
        """An empty slot goes on after `count` full pages, which `resumable` allowed."""
        first = self._live(count * self.page_size)
        for index in range(first, count):
            page = self.pool.find(prefixes[index])
            if page is not None:  # it was found a moment ago
                self.pool.hold_match(page, prefixes[index])
                self.tables[slot, index] = page
        self.tables[slot, :first] = NULL_PAGE
        self._first[slot], self._stop[slot], self._num_noted[slot] = first, count, count
        self._is_forked[slot] = False

    def advance(self, slots: np.ndarray, starts: np.ndarray, lengths: np.ndarray, group: int) -> list[PageCopy]:
        """Pages for the positions starts .. lengths - 1 of the slots; the copies to make before those are written."""
        copies = []
        for i in np.flatnonzero(self._is_forked[slots]).tolist():
            if (copy := self._unshare(int(slots[i]), int(starts[i]), group)) is not None:
                copies.append(copy)
        stops = -(-lengths // self.page_size)
        for i in np.flatnonzero(stops > self._stop[slots]).tolist():
            slot, stop = int(slots[i]), int(stops[i])
            self.tables[slot, self._stop[slot] : stop] = self.pool.take_many(stop - int(self._stop[slot]))
            self._stop[slot] = stop
        return copies

    def trim(self, slots: np.ndarray, stops: np.ndarray) -> None:
        """Gives pages back that lie behind the first stops[i] of each slot, the last first."""
        for i in np.flatnonzero(self._stop[slots] > stops).tolist():
            slot, stop = int(slots[i]), int(stops[i])
            for page in reversed(self.tables[slot, stop : self._stop[slot]].tolist()):
                self.pool.give_back(page)
            self._stop[slot] = stop

    def _unshare(self, slot: int, position: int, group: int) -> PageCopy | None:
        """Its own copy of the page that a position lies in, where that is another's too."""
        index = position // self.page_size
        self._is_forked[slot] = False
        page = int(self.tables[slot, index]) if index < self._stop[slot] else NULL_PAGE
        if page == NULL_PAGE or not self.pool.is_shared(page):
            return None
        own = self.pool.take()
        self.pool.give_back(page)
        self.tables[slot, index] = own
        return PageCopy(page, own, group)

    def note(self, slot: int, prefixes: Sequence[Prefix], num_computed: int) -> None:
        """Full pages become findable; those that no later query reads are given back."""
        first, count = int(self._num_noted[slot]), num_computed // self.page_size
        for page, prefix in zip(self.tables[slot, first:count].tolist(), prefixes[first:count], strict=True):
            if page != NULL_PAGE:
                self.pool.note(page, prefix)
        self._num_noted[slot] = count
        live = min(self._live(num_computed), count)
        for index in range(int(self._first[slot]), live):
            self.pool.give_back(int(self.tables[slot, index]))
            self.tables[slot, index] = NULL_PAGE
        self._first[slot] = max(int(self._first[slot]), live)

    def fork(self, parent: int, child: int) -> None:
        """Gives an empty slot the same pages. The first of the two that writes to a shared page copies it."""
        first, stop = int(self._first[parent]), int(self._stop[parent])
        for page in self.tables[parent, first:stop].tolist():
            self.pool.hold(page)
        self.tables[child, :stop] = self.tables[parent, :stop]
        for array in (self._first, self._stop, self._num_noted):
            array[child] = array[parent]
        self._is_forked[parent] = self._is_forked[child] = True

    def close(self, slot: int) -> None:
        """Gives all pages back, the last first."""
        first, stop = int(self._first[slot]), int(self._stop[slot])
        for page in reversed(self.tables[slot, first:stop].tolist()):
            self.pool.give_back(page)
        self._first[slot] = self._stop[slot] = 0

    def check_integrity(self) -> None:
        """BadInput unless every page is free or held by just the tables that list it."""
        held: dict[int, int] = {}
        for slot, (first, stop) in enumerate(zip(self._first.tolist(), self._stop.tolist(), strict=True)):
            for page in self.tables[slot, first:stop].tolist():
                held[page] = held.get(page, 0) + 1
        self.pool.check_integrity(held)
