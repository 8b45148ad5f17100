"""Prompt lookup: what followed the last few tokens when they came before. No model, and no look through the context."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from samebits.engine.drafts.drafter import Wanted

LOOKUPS = ((7, 99), (4, 3), (3, 1))  # how many last tokens are looked up, and how many guesses they are good for
NOTHING = np.zeros(0, np.int32)


class History:
    """Where each run of tokens ended last, in one sequence. It grows with the sequence, a few entries per token."""

    __slots__ = ("_ends", "_tokens")

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}

    def follow(self, tokens: np.ndarray) -> None:
        """Takes what is new in int32 tokens, which start with those that were given before."""
        known, ends = self._tokens, self._ends
        first = len(known)
        known.extend(tokens[first:].tolist())
        for end in range(max(first, 1), len(known)):  # not the last: it is what is looked up
            for length, _ in LOOKUPS:
                if end >= length:
                    ends[tuple(known[end - length : end])] = end

    def guess(self, most: int) -> np.ndarray:
        """What followed the longest run of last tokens that was there before; nothing if none was.

        Where that comes to the end of what is known, it starts again from where it began: such texts repeat themselves.
        """
        known = self._tokens
        for length, num_good in LOOKUPS:
            end = self._ends.get(tuple(known[-length:])) if len(known) > length else None
            if end is not None:
                count = min(most, num_good)
                return np.resize(np.array(known[end : end + count], np.int32), count)
        return NOTHING


class NgramDrafter:
    """Guesses that a text goes on as it did before."""

    def __init__(self) -> None:
        self._histories: dict[Hashable, History] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[np.ndarray]:
        drafts = []
        for want in wanted:
            history = self._histories.setdefault(want.key, History())
            history.follow(want.tokens)
            drafts.append(history.guess(want.most))
        return drafts

    def forget(self, key: Hashable) -> None:
        self._histories.pop(key, None)
