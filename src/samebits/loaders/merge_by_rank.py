"""Byte-level BPE: of all pairs that a vocabulary merges, the one of lowest rank goes first, the leftmost of equals.

Written out because the `tokenizers` library keeps every token twice as text: ten times what these arrays take, and more
than all else that a small model needs beside its weights.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

UNKNOWN = -1  # a symbol that is no token; never merged


class Merges:
    """Which two tokens become which third, and how soon."""

    def __init__(self, merges: np.ndarray, num_tokens: int) -> None:
        """int32 [merges, 3]: left, right and join, by rank; a repeated pair keeps its first rank."""
        keys, ranks = np.unique(merges[:, 0].astype(np.int64) * num_tokens + merges[:, 1], return_index=True)
        self._num_tokens = num_tokens
        self._keys = array("q", keys.tobytes())  # sorted; of Python's own kind, which bisect reads faster
        self._ranks = array("I", ranks.astype(np.uint32).tobytes())
        self._joins = array("I", merges[ranks, 2].astype(np.uint32).tobytes())

    def find(self, left: int, right: int) -> tuple[int, int] | None:
        """(rank, join) of a pair, or None."""
        if left < 0 or right < 0:
            return None
        key = left * self._num_tokens + right
        i = bisect_left(self._keys, key)
        return (self._ranks[i], self._joins[i]) if i < len(self._keys) and self._keys[i] == key else None

    def merge(self, symbols: Sequence[int]) -> list[int]:
        """The tokens of a word given as the tokens of its bytes; those that are UNKNOWN are left out at the end."""
        merged, last = list(symbols), len(symbols) - 1
        following, preceding = list(range(1, last + 2)), list(range(-1, last))
        queue: list[tuple[int, int, int]] = []  # rank, place of the left one, join

        def offer(left: int, right: int) -> None:
            if (found := self.find(merged[left], merged[right])) is not None:
                heapq.heappush(queue, (found[0], left, found[1]))

        for left in range(last):
            offer(left, left + 1)
        while queue:
            _, left, join = heapq.heappop(queue)
            right = following[left]
            if merged[left] < 0 or right > last:
                continue  # merged into its left neighbour, or nothing follows any more
            found = self.find(merged[left], merged[right])
            if found is None or found[1] != join:
                continue  # one of the two has grown meanwhile
            merged[left], merged[right] = join, UNKNOWN
            after = following[left] = following[right]
            if after <= last:
                preceding[after] = left
                offer(left, after)
            if preceding[left] >= 0:
                offer(preceding[left], left)
        return [token for token in merged if token >= 0]
