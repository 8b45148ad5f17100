"""Drafters for tests: one that knows answers and errs as often as it is told to, and those that mean harm."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from scenes import PARAMS, Lab, prompt_of

from samebits.engine.drafts.drafter import Wanted


class Knowing:
    """Knows the watched answers, and others by heart: a guess is right with this chance, else any token."""

    def __init__(self, lab: Lab, chance: float, seed: int = 0, most: int = 99) -> None:
        self.chance, self.most, self.vocab_size = chance, most, lab.runner.vocab_size
        self.rng = np.random.default_rng(seed)
        self.texts: list[tuple[list[int], int | None, int]] = []
        self.num_asked = 0
        for name, params in PARAMS.items():
            for i, answer in enumerate(lab.alone[name]):
                self.learn(prompt_of(name, self.vocab_size), answer.token_ids, params.seed, i)

    def learn(self, prompt: Sequence[int], answer: Sequence[int], seed: int | None, sample_index: int) -> None:
        self.texts.append(([*prompt, *answer], seed, sample_index))

    def propose(self, wanted: Sequence[Wanted]) -> list[np.ndarray]:
        self.num_asked += len(wanted)
        return [self._guess(want) for want in wanted]

    def _guess(self, want: Wanted) -> np.ndarray:
        known = want.tokens.tolist()
        for text, seed, sample_index in self.texts:
            is_it = (seed, sample_index) == (want.params.seed, want.sample_index)
            if is_it and text[: len(known)] == known:
                right = np.array(text[len(known) : len(known) + want.most], np.int32)
                break
        else:
            right = self.rng.integers(0, self.vocab_size, want.most)
        wrong = self.rng.integers(0, self.vocab_size, len(right))
        return np.where(self.rng.random(len(right)) < self.chance, right, wrong)[: self.most]

    def forget(self, key: Hashable) -> None:
        pass


class Hostile:
    """Says anything but what was asked for, and breaks."""

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self.rng, self.vocab_size = np.random.default_rng(seed), vocab_size

    def propose(self, wanted: Sequence[Wanted]) -> Any:
        kind = int(self.rng.integers(5))
        if kind == 0:
            raise MemoryError("no room for\nguesses")
        if kind == 1:
            return [np.zeros(3, np.int32)] * (len(wanted) + 1)
        if kind == 2:
            return None
        return [self._one(want) for want in wanted]

    def _one(self, want: Wanted) -> Any:
        ids = self.rng.integers(0, self.vocab_size, 1000)
        choices: list[Any] = [
            ids,  # far too many
            np.array([-1]),
            np.array([5, self.vocab_size, 5]),
            np.array([5, 2**63 - 1]),
            np.array([5, 2**64 - 1], np.uint64),
            np.full(want.most, -(2**31), np.int32),
            ids[: want.most].astype(float),
            ids[: want.most, None],
            np.array(["a"]),
            np.array(None),
            [],
            want.tokens[-1:],
        ]
        return choices[int(self.rng.integers(len(choices)))]

    def forget(self, key: Hashable) -> None:
        raise RuntimeError("cannot forget")
