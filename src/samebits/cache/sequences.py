"""Page tables of running sequences over one pool: opening, growing, forking and closing them.

A sequence is a slot, a row of `tables`. Arrays hold what every step asks for, so that a step over a thousand sequences
costs a few array operations and a visit to those few that cross a page's edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from samebits.cache.pages import NULL_PAGE, PageCopy, PagePool, Prefix
from samebits.cache.states import SlotStates
from samebits.cache.windows import WindowPages
from samebits.core.errors import BadInput


@dataclass(frozen=True)
class Match:
    """Pages that already hold the start of a sequence, and what it would take to open it."""

    pages: tuple[int, ...]
    num_needed: int  # free pages that opening takes, idle ones among `pages` counted
    coming_slot: int | None  # of a running sequence that is about to make more of it known
    num_known: int = 0  # pages that are known: more than `pages` where no snapshot was taken at their end
    num_coming: int = 0  # and with those that the slot is about to compute; 0 where it computes none of them


class PageCache:
    """Who holds which page.

    num_pages     of the pool, page 0 among them, which is never handed out
    max_len       tokens a sequence may have
    window        positions before this many are never read again: their pages are given back
    further       (window, pages) of groups of layers with narrower windows, each with a pool of its own
    num_snapshots of states that are kept in slots beside the pages; None for a model that keeps all in pages
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        max_sequences: int,
        max_len: int,
        *,
        window: int | None = None,
        further: Sequence[tuple[int, int]] = (),
        num_snapshots: int | None = None,
    ) -> None:
        if page_size < 1 or max_sequences < 1 or max_len < 1:
            raise BadInput("cache", "sizes", (page_size, max_sequences, max_len), "1 or more each")
        self.pool, self.page_size, self.window = PagePool(num_pages), page_size, window
        self.max_len = min(max_len, (num_pages - 1) * page_size)
        self.tables = np.zeros((max_sequences, self.pages_for(self.max_len)), np.int32)
        self.windows = tuple(WindowPages(w, count, page_size, self.tables.shape) for w, count in further)
        has_slots, max_pages = num_snapshots is not None, self.tables.shape[1]
        self.states = SlotStates(page_size, max_sequences, num_snapshots or 0, max_pages) if has_slots else None
        self.num_held = np.zeros(max_sequences, np.int32)  # entries of each table, null ones counted
        self._num_noted = np.zeros(max_sequences, np.int32)  # full pages whose prefix the pool knows
        self._num_released = np.zeros(max_sequences, np.int32)  # by the window
        self._is_forked = np.zeros(max_sequences, bool)  # the last page may be another's too
        self._coming: dict[bytes, int] = {}  # prefixes of pages that a slot will compute
        self._promised: dict[int, tuple[bytes, ...]] = {}  # and the same by slot

    def clear(self) -> None:
        """Close all sequences and forget all prefixes, in whatever state they are."""
        self.pool.clear()
        for group in self.windows:
            group.clear()
        if self.states is not None:
            self.states.clear()
        self.num_held[:] = 0
        self._coming.clear()
        self._promised.clear()

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    @property
    def num_used(self) -> int:
        """Pages that some sequence holds."""
        return self.pool.num_pages - 1 - self.pool.num_free

    def match(self, prefixes: Sequence[Prefix], num_tokens: int) -> Match:
        """The longest known start of a sequence of so many tokens, whose full pages have these prefixes.

        The lookup stops at the first miss, and before the last token: that one is always computed. Every group of
        pages must be able to go on there, and states in slots must have a snapshot.
        """
        pages: list[int] = []
        limit = min(len(prefixes), (num_tokens - 1) // self.page_size)
        for prefix in prefixes[:limit]:
            page = self.pool.find(prefix)
            if page is None:
                break
            pages.append(page)
        del pages[self._resumable(prefixes, len(pages)) :]
        num_known = len(pages)
        coming_slot = self._coming.get(prefixes[num_known].digest) if num_known < limit else None
        num_coming = 0
        if self.states is not None:
            del pages[self._resumable(prefixes, num_known, self.states) :]
            if coming_slot is None:
                coming_slot = self.states.coming(prefixes, len(pages), num_known)
            else:
                owners = (self._coming.get(p.digest) for p in prefixes[num_known:limit])
                num_coming = num_known + sum(1 for _ in takewhile(lambda slot: slot == coming_slot, owners))
        num_idle = sum(map(self.pool.is_idle, pages))
        num_needed = self.pages_for(num_tokens) - len(pages) + num_idle
        return Match(tuple(pages), num_needed, coming_slot, num_known, num_coming)

    def _resumable(self, prefixes: Sequence[Prefix], count: int, states: SlotStates | None = None) -> int:
        """After how many full pages, of the first `count`, which are known, a sequence can go on."""
        while True:
            best = count if states is None else states.longest(prefixes, count)
            for group in self.windows:
                best = group.resumable(prefixes, best)
            if best == count:
                return best
            count = best

    def want(self, match: Match, prefixes: Sequence[Prefix]) -> None:
        """One that waits for the match's coming pages will go on where those end, and needs a snapshot there."""
        if self.states is not None and match.coming_slot is not None and match.num_coming:
            self.states.want(match.coming_slot, prefixes, match.num_coming)

    def open(self, slot: int, match: Match, prefixes: Sequence[Prefix], num_tokens: int) -> int:
        """Gives an empty slot the matched pages and new ones up to num_tokens; returns how many tokens are there.

        The caller has seen that match.num_needed pages are free.
        """
        for page, prefix in zip(match.pages, prefixes, strict=False):
            self.pool.hold_match(page, prefix)
        self.tables[slot, : len(match.pages)] = match.pages
        self.num_held[slot] = self._num_noted[slot] = len(match.pages)
        self._num_released[slot] = 0
        self._is_forked[slot] = False
        self.grow(slot, num_tokens)
        for group in self.windows:
            group.open(slot, prefixes, len(match.pages))
        if self.states is not None:
            self.states.open(slot, prefixes, len(match.pages), match.num_known, num_tokens)
        coming = tuple(p.digest for p in prefixes[len(match.pages) :])
        self._coming.update(dict.fromkeys(coming, slot))
        self._promised[slot] = coming
        return len(match.pages) * self.page_size

    def fork(self, parent: int, child: int) -> None:
        """Gives an empty slot the same pages. The first of the two that writes to a shared page copies it."""
        count = self.num_held[parent]
        for page in self.tables[parent, :count].tolist():
            if page != NULL_PAGE:
                self.pool.hold(page)
        self.tables[child, :count] = self.tables[parent, :count]
        for array in (self.num_held, self._num_noted, self._num_released):
            array[child] = array[parent]
        self._is_forked[parent] = self._is_forked[child] = True
        for group in self.windows:
            group.fork(parent, child)
        if self.states is not None:
            self.states.fork(parent, child)

    def advance(self, slots: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> list[PageCopy]:
        """Pages in windows for the tokens starts .. lengths - 1 of a step; the copies to make before it."""
        return [
            copy
            for number, group in enumerate(self.windows, 1)
            for copy in group.advance(slots, starts, lengths, number)
        ]

    def shortage(self, slots: np.ndarray, num_tokens: np.ndarray) -> np.ndarray:
        """int [B]: free pages that each slot takes to write its last token, the copy of a shared page counted."""
        short = -(-num_tokens // self.page_size) - self.num_held[slots]
        for i in np.flatnonzero(self._is_forked[slots] & (short == 0)):
            short[i] = self.pool.is_shared(self.tables[slots[i], (num_tokens[i] - 1) // self.page_size])
        return short

    def grow_all(self, slots: np.ndarray, num_tokens: np.ndarray, short: np.ndarray) -> list[PageCopy]:
        """Room for each slot's tokens, the last of which will be written, `short` being their shortage.

        The caller has seen that the pages are free. Returns the copies to make before.
        """
        is_plain = (short == 1) & ~self._is_forked[slots]  # nearly all: one page more
        plain = slots[is_plain]
        if len(plain):
            self.tables[plain, self.num_held[plain]] = self.pool.take_many(len(plain))
            self.num_held[plain] += 1
        others = np.flatnonzero((short > 0) & ~is_plain).tolist()
        copies = (self.grow(int(slots[i]), int(num_tokens[i])) for i in others)
        return [copy for copy in copies if copy is not None]

    def grow(self, slot: int, num_tokens: int) -> PageCopy | None:
        """Pages for so many tokens, the last of which will be written; the caller has seen that they are free.

        Returns the copy to make before that where the last page was shared.
        """
        count, wanted = int(self.num_held[slot]), self.pages_for(num_tokens)
        if wanted > count:
            self.tables[slot, count:wanted] = self.pool.take_many(wanted - count)
            self.num_held[slot] = wanted
            return None
        last = wanted - 1
        page = int(self.tables[slot, last])
        if not (self._is_forked[slot] and self.pool.is_shared(page)):
            return None
        own = self.pool.take()
        self.pool.give_back(page)
        self.tables[slot, last] = own
        self._is_forked[slot] = False
        return PageCopy(page, own)

    def extend(self, slot: int, num_tokens: int) -> int:
        """Pages for so many tokens as far as free ones last, behind a page that is the slot's own.

        Returns for how many tokens there is room now, num_tokens at most.
        """
        count = int(self.num_held[slot])
        num_new = min(self.pages_for(num_tokens) - count, self.pool.num_free)
        if num_new > 0:
            self.tables[slot, count : count + num_new] = self.pool.take_many(num_new)
            self.num_held[slot] += num_new
        return min(num_tokens, int(self.num_held[slot]) * self.page_size)

    def trim(self, slots: np.ndarray, num_computed: np.ndarray) -> None:
        """Gives pages back that lie behind each slot's computed tokens, the last first. Nobody else has them."""
        wanted = -(-num_computed // self.page_size)
        for i in np.flatnonzero(self.num_held[slots] > wanted).tolist():
            slot, count = int(slots[i]), int(wanted[i])
            for page in reversed(self.tables[slot, count : self.num_held[slot]].tolist()):
                self.pool.give_back(page)
            self.num_held[slot] = count
        for group in self.windows:
            group.trim(slots, wanted)

    def crossings(self, slots: np.ndarray, num_computed: np.ndarray) -> np.ndarray:
        """Which of the slots have full pages that `note` has not seen: indices into `slots`."""
        return np.flatnonzero(num_computed // self.page_size > self._num_noted[slots])

    def note(self, slot: int, prefixes: Sequence[Prefix], num_computed: int) -> None:
        """Full pages become findable; those that left the window are given back."""
        first, count = int(self._num_noted[slot]), num_computed // self.page_size
        parent = prefixes[first - 1].digest if first else None
        for page, prefix in zip(self.tables[slot, first:count].tolist(), prefixes[first:count], strict=True):
            if page != NULL_PAGE:
                self.pool.note(page, prefix, parent)
            parent = prefix.digest
            if self._coming and self._coming.get(prefix.digest) == slot:
                del self._coming[prefix.digest]
        self._num_noted[slot] = count
        for group in self.windows:
            group.note(slot, prefixes, num_computed)
        if self.window is not None:
            self._release(slot, max(0, num_computed - self.window) // self.page_size)

    def _release(self, slot: int, stop: int) -> None:
        first = int(self._num_released[slot])
        for index in range(first, stop):
            self.pool.give_back(int(self.tables[slot, index]))
            self.tables[slot, index] = NULL_PAGE
        self._num_released[slot] = max(first, stop)

    def close(self, slot: int) -> None:
        """Gives all pages back, the last first: what a prefix starts with is kept longest."""
        for page in reversed(self.tables[slot, : self.num_held[slot]].tolist()):
            if page != NULL_PAGE:
                self.pool.give_back(page)
        self.num_held[slot] = 0
        for group in self.windows:
            group.close(slot)
        if self.states is not None:
            self.states.close(slot)
        for digest in self._promised.pop(slot, ()):
            if self._coming.get(digest) == slot:
                del self._coming[digest]

    def check_integrity(self) -> None:
        """BadInput unless every page is free or held by just the tables that list it."""
        held: dict[int, int] = {}
        for slot, count in enumerate(self.num_held.tolist()):
            for page in self.tables[slot, :count].tolist():
                if page != NULL_PAGE:
                    held[page] = held.get(page, 0) + 1
        self.pool.check_integrity(held)
        for group in self.windows:
            group.check_integrity()
        open_slots = set(np.flatnonzero(self.num_held).tolist())
        if self.states is not None:
            self.states.check_integrity(open_slots)
        if not set(self._coming.values()) <= open_slots:
            raise BadInput("cache", "prefixes", "a page promised by a closed sequence", "promises of open ones")
