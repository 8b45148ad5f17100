"""The engine's side of guessing: who is asked for how many, what is believed of it, what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from samebits.engine.answer import Answer
from samebits.engine.drafts.acceptance import Acceptance
from samebits.engine.drafts.drafter import Drafter, Wanted
from samebits.engine.drafts.pace import Pace
from samebits.engine.faults import reason_of
from samebits.scheduler import Sequence, StepPlan

NOTHING = np.zeros(0, np.int32)
log = logging.getLogger("samebits.engine")


class Speculation:
    """Asks a drafter within the room of a step, and keeps what each sequence's guesses were worth.

    num_drafted, num_taken   guessed tokens so far, and those among them that were right
    """

    def __init__(self, drafter: Drafter, vocab_size: int, pace: Pace) -> None:
        self._drafter, self._vocab_size, self._pace = drafter, vocab_size, pace
        self._seen: dict[Sequence, Acceptance] = {}
        self._last_fault = ""
        self.num_drafted = self.num_taken = 0

    def propose(
        self,
        sequences: list[Sequence],
        room: int,
        answer_of: Callable[[Sequence], Answer],
        tokens_of: Callable[[Sequence], np.ndarray],
    ) -> list[np.ndarray]:
        """Guesses for each sequence, with room for so many in all: int32 token ids of the vocabulary."""
        wishes: dict[int, int] = {}
        for i, sequence in enumerate(sequences):
            left = answer_of(sequence).num_left - 1  # behind the last guess one more is drawn
            wish = self._seen.setdefault(sequence, Acceptance()).wish(self._pace.costs)
            if min(wish, left) > 0:
                wishes[i] = min(wish, left)
        share = room // max(len(wishes), 1)
        if not share or not wishes:
            return [NOTHING] * len(sequences)
        wanted = []
        for i, wish in wishes.items():
            sequence, answer = sequences[i], answer_of(sequences[i])
            most = min(wish, share)
            wanted.append(Wanted(sequence, tokens_of(sequence), most, answer.params, answer.sample_index))
        found = self._ask(wanted)
        drafts = [NOTHING] * len(sequences)
        for i, draft in zip(wishes, found, strict=True):
            costs = self._pace.costs[: len(draft) + 1]  # a drafter may find fewer than are worth a dearer step
            drafts[i] = draft[: self._seen[sequences[i]].wish(costs)]
        return drafts

    def _ask(self, wanted: list[Wanted]) -> list[np.ndarray]:
        """What the drafter says, as far as it can be used."""
        try:
            said = self._drafter.propose(wanted)
            return [self._usable(draft, want.most) for draft, want in zip(said, wanted, strict=True)]
        except BaseException as error:
            self._note_fault(reason_of(error))
            return [NOTHING] * len(wanted)

    def _usable(self, said: np.ndarray, most: int) -> np.ndarray:
        """The ids before the first that no token has."""
        ids = np.asarray(said)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            return NOTHING
        ids = ids[:most]
        wrong = np.flatnonzero((ids < 0) | (ids >= self._vocab_size))
        return (ids[: wrong[0]] if len(wrong) else ids).astype(np.int32)

    def learn(self, plan: StepPlan, counts: np.ndarray) -> tuple[int, int]:
        """What a step took: counts[i] tokens of plan.sampled[i]. Returns guessed tokens, and right ones among them."""
        num_drafted = num_taken = 0
        for sequence, draws, count in zip(plan.sampled, plan.num_draws.tolist(), counts.tolist(), strict=True):
            seen = self._seen.get(sequence)
            if seen is not None:
                taken = max(0, min(count, draws) - 1)
                seen.see(draws - 1, taken)
                num_drafted += draws - 1
                num_taken += taken
        self.num_drafted += num_drafted
        self.num_taken += num_taken
        return num_drafted, num_taken

    def forget(self, sequence: Sequence) -> None:
        """A sequence that has ended."""
        if self._seen.pop(sequence, None) is None:
            return
        try:
            self._drafter.forget(sequence)
        except BaseException as error:
            self._note_fault(reason_of(error))

    def _note_fault(self, fault: str) -> None:
        """The same one over and over is logged once."""
        if fault != self._last_fault:
            log.error("a drafter failed: %s", fault)
        self._last_fault = fault
