"""Merges by rank against the `tokenizers` library, on vocabularies drawn at random."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tokenizers

from samebits.loaders.merge_by_rank import UNKNOWN, Merges

LETTERS = "abc"


def _random_vocab(draw: random.Random) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Joins of joins in an order that need not be that of their making, so that ranks cross."""
    tokens, pairs = list(LETTERS), []
    for _ in range(30):
        left, right = draw.choice(tokens), draw.choice(tokens)
        if (left, right) not in pairs and len(left + right) < 9:
            pairs.append((left, right))
            if left + right not in tokens:
                tokens.append(left + right)
    draw.shuffle(pairs)
    return {text: i for i, text in enumerate(tokens)}, pairs


def _merges(ids: dict[str, int], pairs: list[tuple[str, str]]) -> Merges:
    return Merges(np.array([(ids[a], ids[b], ids[a + b]) for a, b in pairs], np.int64), len(ids))


@pytest.mark.parametrize("seed", range(20))
def test_as_the_library(seed: int) -> None:
    draw = random.Random(seed)
    ids, pairs = _random_vocab(draw)
    library = tokenizers.Tokenizer(tokenizers.models.BPE(ids | {"?": len(ids)}, pairs, unk_token="?"))
    merges = _merges(ids, pairs)
    for _ in range(200):
        word = "".join(draw.choices([*LETTERS, "x"], [9, 9, 9, 1], k=draw.randint(1, 40)))
        expected = [i for i in library.encode(word).ids if i != len(ids)]
        assert merges.merge([ids.get(char, UNKNOWN) for char in word]) == expected, word


def test_a_repeated_pair_keeps_its_first_rank() -> None:
    ids = {text: i for i, text in enumerate(("a", "b", "c", "ab", "bc"))}
    merges = _merges(ids, [("a", "b"), ("b", "c"), ("a", "b")])
    assert merges.merge([0, 1, 2]) == [ids["ab"], ids["c"]]
    assert merges.merge([]) == []
