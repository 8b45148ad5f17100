"""Guessed tokens in a simulation: right with a chance that is given, asked for as the engine asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits.engine.drafts.acceptance import Acceptance
from samebits.engine.drafts.pace import Pace
from samebits.scheduler import Sequence as Sample
from samebits.scheduler import StepPlan


class Guessing:
    """A drafter whose guesses are each right with the same chance, and how many of them were asked for and right."""

    def __init__(self, chance: float, pace: Pace, seed: int = 0) -> None:
        self._chance, self._pace, self._rng = chance, pace, np.random.default_rng(seed)
        self._seen: dict[Sample, Acceptance] = {}
        self.num_drafted = self.num_taken = 0

    def propose(self, sequences: Sequence[Sample], room: int) -> list[np.ndarray]:
        """For the scheduler: made-up tokens, as many as are worth their time."""
        share = room // len(sequences)
        wishes = (self._seen.setdefault(s, Acceptance()).wish(self._pace.costs) for s in sequences)
        return [np.zeros(min(wish, share), np.int32) for wish in wishes]

    def counts(self, plan: StepPlan) -> np.ndarray:
        """int32: tokens that each of plan.sampled goes on with."""
        found = np.ones(len(plan.sampled), np.int32)
        for i, sequence in enumerate(plan.sampled):
            num_drafted = int(plan.num_draws[i]) - 1
            num_right = int((self._rng.random(num_drafted) < self._chance).cumprod().sum())
            if sequence in self._seen:
                self._seen[sequence].see(num_drafted, num_right)
            found[i] += num_right
            self.num_drafted += num_drafted
            self.num_taken += num_right
        return found

    def forget(self, sequence: Sample) -> None:
        self._seen.pop(sequence, None)
