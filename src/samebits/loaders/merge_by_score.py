"""SentencePiece's BPE as llama.cpp does it: the pair whose join has the best score is merged first.

Written out rather than given to the `tokenizers` library as reconstructed merges: there a pair has one rank, while
here every pair with the same join ties and the leftmost goes first, which shows in runs of spaces or letters.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def merge_by_score(text: str, ids: Mapping[str, int], scores: Sequence[float]) -> list[str]:
    """`text` cut into tokens and single characters; a character may be one that `ids` does not hold."""
    symbols: list[str] = list(text)
    following = [*range(1, len(symbols)), -1]
    preceding = list(range(-1, len(symbols) - 1))
    queue: list[tuple[float, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        joined = symbols[left] + symbols[right]
        if (token := ids.get(joined)) is not None:
            heapq.heappush(queue, (-scores[token], left, right, joined))

    for left in range(len(symbols) - 1):
        offer(left, left + 1)
    while queue:
        _, left, right, joined = heapq.heappop(queue)
        if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(joined):
            continue  # one of the two has been merged into something else meanwhile
        symbols[left], symbols[right] = joined, ""
        after = following[left] = following[right]
        if after >= 0:
            preceding[after] = left
            offer(left, after)
        if (before := preceding[left]) >= 0:
            offer(before, left)
    return [symbol for symbol in symbols if symbol]
