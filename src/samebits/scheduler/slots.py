"""Running sequences in rows of arrays: their tokens, and how far they are known and computed."""

from __future__ import annotations

from bisect import insort

import numpy as np

from samebits.cache import PageCache, PageCopy
from samebits.core.step import gather, lay_out, ranges
from samebits.scheduler.request import RUNNING, UNBORN, Sequence
from samebits.scheduler.step import Scored, StepPlan


class Slots:
    """`known` and `computed` tokens of every slot; the next step of a sequence computes some that are not yet.

    `ahead` tokens behind the known ones are guesses: those that a request expects, or drafts for the coming step.
    """

    def __init__(self, pages: PageCache) -> None:
        count = len(pages.tables)
        self._pages = pages
        self.tokens = np.zeros((count, pages.max_len + 1), np.int32)
        self.known = np.zeros(count, np.int32)
        self.computed = np.zeros(count, np.int32)
        self.ahead = np.zeros(count, np.int32)
        self.running: list[Sequence] = []  # those to be served first in front
        self._num_scored = np.zeros(count, np.int32)
        self._draws = np.zeros(count, bool)
        self._has_unborn = np.zeros(count, bool)
        self._is_expected = np.zeros(count, bool)  # what is ahead was there from the start
        self._by_slot = np.full(count, None, object)
        self.clear()

    def clear(self) -> None:
        """Forget all sequences: every slot is free."""
        self.running.clear()
        self._free = list(range(len(self._by_slot) - 1, -1, -1))
        self._by_slot[:] = None
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
        self._expect(slot, sequence)
        self._by_slot[slot], self._order = sequence, None
        sequence.slot, sequence.state = slot, RUNNING
        insort(self.running, sequence)

    def _expect(self, slot: int, sequence: Sequence) -> None:
        """Puts what is expected of a sequence behind what is known."""
        expected, known = sequence.request.expected, len(sequence.tokens)
        self._is_expected[slot], self.ahead[slot] = expected is not None, sequence.num_reached - known
        if expected is not None:
            num_drawn = known - len(sequence.request.prompt)
            self.tokens[slot, known : known + len(expected) - num_drawn] = expected[num_drawn:]

    def expect_nothing(self) -> bool:
        """Whether no running sequence has tokens ahead that its request expects."""
        return not self._is_expected[self.in_order()].any()

    def may_draft(self, slots: np.ndarray) -> np.ndarray:
        """bool: which of the slots, all of which decode, draw for themselves alone and expect nothing."""
        is_scored = self.computed[slots] < self._num_scored[slots]
        return self._draws[slots] & ~(self._is_expected[slots] | self._has_unborn[slots] | is_scored)

    def put_draft(self, slot: int, draft: np.ndarray) -> None:
        """Guesses for the coming step, for which there are pages."""
        known = self.known[slot]
        self.tokens[slot, known : known + len(draft)] = draft
        self.ahead[slot] = len(draft)

    def drop_drafts(self, slots: np.ndarray) -> np.ndarray:
        """Forgets guesses that were for one step; returns those of the slots that may have had such."""
        drafted = slots[~self._is_expected[slots]]
        self.ahead[drafted] = 0
        return drafted

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

    def lay_out(
        self,
        decodes: np.ndarray,
        chunks: list[tuple[int, int]],
        copies: list[PageCopy],
        num_pending: int = 0,
    ) -> StepPlan:
        """The step of slots that decode a token each and what is ahead, then of (slot, tokens) chunks of prompts.

        num_pending   1 where the step before is still computed, in which each of them draws the token it decodes here:
                      `token_ids` hold nothing yet
        """
        slots = np.concatenate([decodes, np.array([slot for slot, _ in chunks], np.int32)])
        num_ahead = self.ahead[decodes]
        counts = np.concatenate([1 + num_ahead, np.array([n for _, n in chunks], np.int32)])
        known = self.known[slots] + num_pending
        starts = known - 1 if num_pending else self.computed[slots]
        lengths = starts + counts
        qo_indptr, owners, inside = ranges(counts)
        is_scored = starts < self._num_scored[slots]
        num_draws = np.where(self._draws[slots], np.maximum(lengths - known + 1, 0), 0)
        num_rows = np.where(is_scored, counts, num_draws)
        rows_indptr, row_owners, row_inside = ranges(num_rows)
        first_rows = rows_indptr[1:] - num_draws  # of those that are drawn from
        sampled_at = np.flatnonzero(num_draws)
        owners_of_slots = self._by_slot[slots]
        sequences: list[Sequence] = owners_of_slots.tolist()
        births = np.flatnonzero((num_draws > 0) & self._has_unborn[slots]).tolist()
        born = [
            (sequences[i], child, first_rows[i])
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
            out_rows=qo_indptr[row_owners + 1] - num_rows[row_owners] + row_inside,
            page_size=pages.page_size,
            tables=pages.tables,
            rows=slots,
            window_tables={group.window: group.tables for group in pages.windows},
        )
        return StepPlan(
            batch=batch,
            slots=slots,
            sampled_at=sampled_at,
            lengths=lengths,
            sequences=sequences,
            sampled=owners_of_slots[sampled_at].tolist() + [child for _, child, _ in born],
            sampled_rows=np.append(first_rows[sampled_at], np.array([row for _, _, row in born], np.int32)),
            num_draws=np.append(num_draws[sampled_at], np.ones(len(born), np.int32)),
            guesses=self._guesses(slots[sampled_at], num_draws[sampled_at], len(born)),
            born=[(parent, child) for parent, child, _ in born],
            late=[(parent, child) for parent, child, _ in late],
            scored=tuple(scored),
            copies=tuple(copies),
            slot_copies=pages.states.hand_out() if pages.states is not None else (),
            num_decodes=len(decodes),
            num_drafts=int(num_ahead.sum()),
        )

    def _guesses(self, slots: np.ndarray, num_draws: np.ndarray, num_born: int) -> np.ndarray:
        """int32 [draws]: what is ahead of each slot as far as the step computes it, -1 where that ends."""
        indptr, owners, inside = ranges(num_draws)
        found = np.full(int(indptr[-1]) + num_born, -1, np.int32)
        if len(owners) > len(slots):
            found[: len(owners)] = gather(self.tokens, slots[owners], self.known[slots[owners]] + inside)
            found[indptr[1:] - 1] = -1
        return found

    def add_tokens(self, slots: np.ndarray, tokens: np.ndarray, counts: np.ndarray) -> None:
        """The next counts[i] tokens are known of slots[i]."""
        _, owners, inside = ranges(counts)
        rows = slots[owners]
        self.tokens[rows, self.known[rows] + inside] = tokens
        self.known[slots] += counts
        self.ahead[slots] = np.where(self._is_expected[slots], np.maximum(self.ahead[slots] - counts, 0), 0)
        self._has_unborn[slots] = False
