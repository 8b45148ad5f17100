"""States that sequences keep in slots: where a prefix can be resumed, and which slots are copied before a step.

A slot holds the state at its sequence's last boundary, the end of its last full page, so a snapshot of it can be taken
after any step. Cuts are the boundaries at which one is wanted: a chunk that would run over one ends there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits.cache.pages import Prefix
from samebits.cache.snapshots import SlotCopy, SnapshotPool
from samebits.core.errors import BadInput

NEVER = np.iinfo(np.int32).max
LEAST_SPACING = 32  # pages between the regular snapshots of a prompt
PROMPTS_OF_POOL = 4  # the regular snapshots of a prompt as long as the context take this part of the pool, at most
MOST_CUTS = 6  # of a sequence at a time: others may ask for a few beside its own


class SlotStates:
    """Counts are full pages. `max_pages` are those of the longest sequence."""

    def __init__(self, page_size: int, max_sequences: int, num_snapshots: int, max_pages: int) -> None:
        if num_snapshots < 0:
            raise BadInput("cache", "num_snapshots", num_snapshots, "0 or more")
        self.page_size, self.pool = page_size, SnapshotPool(max_sequences, num_snapshots)
        self._spacing = max(LEAST_SPACING, -(-max_pages // max(1, num_snapshots // PROMPTS_OF_POOL)))
        self._cuts: dict[int, dict[int, bytes]] = {}  # by slot: counts, and the prefixes that end there
        self._promised: dict[bytes, int] = {}  # the same prefixes, and the slot that will come to them
        self._regular: dict[int, tuple[int, int]] = {}  # by slot: the next regular snapshot, and where the prompt ends
        self._next = np.full(max_sequences, NEVER, np.int32)  # the smallest of these by slot
        self._is_spoiled = np.zeros(max_sequences, bool)
        self._copies: list[SlotCopy] = []  # to be made before the next step

    def clear(self) -> None:
        """Close all sequences and forget all snapshots, in whatever state they are."""
        self.pool.clear()
        self._cuts.clear()
        self._promised.clear()
        self._regular.clear()
        self._next[:] = NEVER
        self._copies = []

    def longest(self, prefixes: Sequence[Prefix], count: int) -> int:
        """After how many pages, of the first `count`, a snapshot was taken; 0 for none."""
        return next((n for n in range(count, 0, -1) if self.pool.find(prefixes[n - 1]) is not None), 0)

    def coming(self, prefixes: Sequence[Prefix], first: int, last: int) -> int | None:
        """The slot that comes to the longest prefix of first + 1 .. last pages of which a snapshot is promised."""
        promised = (self._promised.get(prefixes[n - 1].digest) for n in range(last, first, -1))
        return next((slot for slot in promised if slot is not None), None)

    def open(self, slot: int, prefixes: Sequence[Prefix], num_resumed: int, num_known: int, num_tokens: int) -> None:
        """A sequence of so many tokens starts after `num_resumed` pages, whose snapshot is copied.

        It is cut where known pages end, and where its prompt does: before its last token, which the next one with the
        same prompt computes itself, and after it, for one that goes on from there.
        """
        self._is_spoiled[slot] = False
        if num_resumed:
            self._copies.append(SlotCopy(self.pool.use(prefixes[num_resumed - 1]), slot, resumable_only=True))
        counts = {num_known, min((num_tokens - 1) // self.page_size, len(prefixes)), len(prefixes)}
        self._cuts[slot] = {n: prefixes[n - 1].digest for n in sorted(counts) if n > num_resumed}
        self._promised.update(dict.fromkeys(self._cuts[slot].values(), slot))
        self._regular[slot] = num_resumed + self._spacing, len(prefixes)
        self._set_next(slot)

    def want(self, slot: int, prefixes: Sequence[Prefix], count: int) -> None:
        """One that waits shares the first `count` pages with the prompt of a running sequence, no more."""
        cuts = self._cuts.get(slot)
        if cuts is not None and len(cuts) < MOST_CUTS and count not in cuts:
            cuts[count] = prefixes[count - 1].digest
            self._promised[cuts[count]] = slot
            self._set_next(slot)

    def chunk_end(self, slot: int, end: int, num_tokens: int) -> int:
        """Where a chunk ends that would end at position `end` of so many tokens: no step runs over a cut.

        A step that ends in the page behind a cut is not over it. One token is left of a prompt that ends there: it
        comes with the next step's decodes.
        """
        cut = min(self._cuts.get(slot, ()), default=NEVER) * self.page_size
        if end < cut + self.page_size:
            return end
        return num_tokens - 1 if cut + self.page_size == num_tokens else cut

    def due(self, slots: np.ndarray, num_computed: np.ndarray) -> np.ndarray:
        """Which of the slots have come to where a snapshot is wanted: indices into `slots`."""
        return np.flatnonzero(num_computed // self.page_size >= self._next[slots])

    def reach(self, slot: int, prefixes: Sequence[Prefix], num_computed: int) -> None:
        """A slot that was due: takes the snapshot if the sequence is where one is wanted."""
        count, cuts = num_computed // self.page_size, self._cuts[slot]
        regular, last = self._regular[slot]
        if count in cuts or count >= regular:
            self.save(slot, prefixes[count - 1])
            self._regular[slot] = count + self._spacing, last
        for passed in [n for n in cuts if n <= count]:
            self._end_promise(slot, cuts.pop(passed))
        self._set_next(slot)

    def save(self, slot: int, prefix: Prefix) -> None:
        """A snapshot of what a slot holds, whose last boundary is the end of this prefix."""
        if not self._is_spoiled[slot] and (target := self.pool.add(prefix)) is not None:
            self._copies.append(SlotCopy(slot, target, resumable_only=True))

    def fork(self, parent: int, child: int) -> None:
        """An empty slot gets all that another holds."""
        self._copies.append(SlotCopy(parent, child, resumable_only=False))
        self._is_spoiled[child] = False
        self._cuts[child], self._regular[child] = {}, (NEVER, 0)

    def close(self, slot: int) -> None:
        """Nothing more comes of a slot."""
        for digest in self._cuts.pop(slot, {}).values():
            self._end_promise(slot, digest)
        self._regular.pop(slot, None)
        self._next[slot] = NEVER

    def hand_out(self) -> tuple[SlotCopy, ...]:
        """The copies to make before the next step, one after another."""
        copies, self._copies = tuple(self._copies), []
        self.pool.release()
        return copies

    def spoil(self, slots: np.ndarray, copies: Sequence[SlotCopy]) -> None:
        """A step of these slots failed, perhaps before its copies were made: what they were to hold is not known."""
        self._is_spoiled[slots] = True
        for copy in copies:
            if copy.target < len(self._is_spoiled):
                self._is_spoiled[copy.target] = True
            else:
                self.pool.forget(copy.target)

    def is_spoiled(self, slot: int) -> bool:
        return bool(self._is_spoiled[slot])

    def _end_promise(self, slot: int, digest: bytes) -> None:
        if self._promised.get(digest) == slot:
            del self._promised[digest]

    def _set_next(self, slot: int) -> None:
        regular, last = self._regular[slot]
        self._next[slot] = min([*self._cuts[slot], regular if regular < last else NEVER])

    def check_integrity(self, open_slots: set[int]) -> None:
        """BadInput unless snapshots add up and only running sequences promise any."""
        self.pool.check_integrity()
        promised = {(digest, slot) for slot, cuts in self._cuts.items() for digest in cuts.values()}
        problems = {
            "cuts of a closed sequence": not self._cuts.keys() <= open_slots,
            "a promise without a cut": not set(self._promised.items()) <= promised,
            "a closed sequence that is due": not set(np.flatnonzero(self._next < NEVER).tolist()) <= self._cuts.keys(),
        }
        if found := [text for text, is_wrong in problems.items() if is_wrong]:
            raise BadInput("cache", "snapshots", ", ".join(found), "cuts and promises of open sequences")
