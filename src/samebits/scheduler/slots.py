"""Running sequences in rows of arrays: their tokens, and how far they are known and computed."""

from __future__ import annotations

from bisect import insort

import numpy as np

from samebits.cache import PageCache, PageCopy
from samebits.core.step import gather, lay_out, ranges
from samebits.scheduler.request import RUNNING, UNBORN, Sequence
from samebits.scheduler.step import Scored, StepPlan


class Slots:
    """`known` and `computed` tokens of every slot; the next step of a sequence computes some that are not yet."""

    def __init__(self, pages: PageCache) -> None:
        count = len(pages.tables)
        self._pages = pages
        self.tokens = np.zeros((count, pages.max_len + 1), np.int32)
        self.known = np.zeros(count, np.int32)
        self.computed = np.zeros(count, np.int32)
        self.running: list[Sequence] = []  # those to be served first in front
        self._num_scored = np.zeros(count, np.int32)
        self._draws = np.zeros(count, bool)
        self._has_unborn = np.zeros(count, bool)
        self._free = list(range(count - 1, -1, -1))
        self._by_slot = np.full(count, None, object)
        self._order: np.ndarray | None = None

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def next_free(self) -> int:
        return self._free[-1]

    def enter(self, sequence: Sequence, num_computed: int) -> None:
        """Puts a sequence into next_free, whose pages are open."""
        slot = self._free.pop()
        count = len(sequence.tokens)
        self.tokens[slot, :count] = sequence.tokens
        self.known[slot], self.computed[slot] = count, num_computed
        self._num_scored[slot], self._draws[slot] = sequence.num_scored, sequence.request.draws
        self._has_unborn[slot] = bool(sequence.unborn)
        self._by_slot[slot], self._order = sequence, None
        sequence.slot, sequence.state = slot, RUNNING
        insort(self.running, sequence)

    def at(self, slot: int) -> Sequence:
        """The sequence that runs there."""
        return self._by_slot[slot]

    def leave(self, sequence: Sequence, state: str) -> None:
        """Takes it out, with its known tokens."""
        slot = sequence.slot
        sequence.tokens = self.tokens[slot, : self.known[slot]].copy()
        sequence.slot, sequence.state = -1, state
        self.running.remove(sequence)
        self._free.append(slot)
        self._by_slot[slot], self._order = None, None

    def in_order(self) -> np.ndarray:
        """Slots of running sequences, in order."""
        if self._order is None:
            self._order = np.array([s.slot for s in self.running], np.int32)
        return self._order

    def lay_out(self, decodes: np.ndarray, chunks: list[tuple[int, int]], copies: list[PageCopy]) -> StepPlan:
        """The step of slots that decode a token each, then of (slot, tokens) chunks of prompts."""
        slots = np.concatenate([decodes, np.array([slot for slot, _ in chunks], np.int32)])
        counts = np.concatenate([np.ones(len(decodes), np.int32), np.array([n for _, n in chunks], np.int32)])
        starts = self.computed[slots]
        lengths = starts + counts
        qo_indptr, owners, inside = ranges(counts)
        is_scored = starts < self._num_scored[slots]
        is_sampled = (lengths == self.known[slots]) & self._draws[slots]
        rows_indptr, row_owners, row_inside = ranges(np.where(is_scored, counts, is_sampled))
        last_rows = rows_indptr[1:] - 1
        owners_of_slots = self._by_slot[slots]
        sequences: list[Sequence] = owners_of_slots.tolist()
        births = np.flatnonzero(is_sampled & self._has_unborn[slots]).tolist()
        born = [
            (sequences[i], child, last_rows[i])
            for i in births
            for child in sequences[i].unborn
            if child.state == UNBORN
        ]
        born, late = born[: self.num_free], born[self.num_free :]
        scored = [
            Scored(sequences[i], int(rows_indptr[i]), int(starts[i]), int(counts[i]))
            for i in np.flatnonzero(is_scored).tolist()
        ]
        pages = self._pages
        copies = [*copies, *pages.advance(slots, starts, lengths)]
        batch = lay_out(
            token_ids=gather(self.tokens, slots[owners], starts[owners] + inside),
            starts=starts,
            counts=counts,
            out_rows=np.where(is_scored[row_owners], qo_indptr[row_owners] + row_inside, qo_indptr[row_owners + 1] - 1),
            page_size=pages.page_size,
            tables=pages.tables,
            rows=slots,
            window_tables={group.window: group.tables for group in pages.windows},
        )
        return StepPlan(
            batch=batch,
            slots=slots,
            sampled_slots=slots[is_sampled],
            lengths=lengths,
            sequences=sequences,
            sampled=owners_of_slots[is_sampled].tolist() + [child for _, child, _ in born],
            sampled_rows=np.append(last_rows[is_sampled], np.array([row for _, _, row in born], np.int32)),
            born=[(parent, child) for parent, child, _ in born],
            late=[(parent, child) for parent, child, _ in late],
            scored=tuple(scored),
            copies=tuple(copies),
            slot_copies=pages.states.hand_out() if pages.states is not None else (),
            num_decodes=len(decodes),
        )

    def add_tokens(self, slots: np.ndarray, tokens: np.ndarray) -> None:
        """One more known token for each slot."""
        self.tokens[slots, self.known[slots]] = tokens
        self.known[slots] += 1
        self._has_unborn[slots] = False
