"""Tokens that a request rules out: words, ids beside those it allows, and an end that comes too soon."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits.engine.sampling import SamplingParams
from samebits.loaders import Tokenizer


class Bans:
    """What one request rules out, for all of its answers.

    A word is ruled out as its tokens, with and without a blank before it: the last of them never follows the others.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, end_ids: frozenset[int]) -> None:
        allowed = params.allowed_token_ids
        self._allowed = None if allowed is None else np.unique(np.array(allowed, np.int64))  # ids may repeat very often
        self._min_tokens = params.min_tokens if end_ids else 0
        self._end_ids = np.array(sorted(end_ids), np.int64)
        spelled = (tokenizer.encode(blank + word, False, False) for word in params.bad_words for blank in ("", " "))
        self._words = list(dict.fromkeys(tuple(ids) for ids in spelled if ids))
        self.num_looked_back = max(map(len, self._words), default=1) - 1  # tokens that `apply` looks at

    def is_any(self, num_answered: int) -> bool:
        """Whether something is ruled out after that many tokens of an answer."""
        return self._allowed is not None or bool(self._words) or num_answered < self._min_tokens

    def apply(self, bias: np.ndarray, num_answered: int, last_ids: Sequence[int]) -> None:
        """Sets bias, float32 [vocab], to -Inf at what may not come next, where an answer ends with `last_ids`.

        An answer that has to end by its grammar may do so before it has min_tokens.
        """
        if self._allowed is not None:
            kept = bias[self._allowed]
            bias.fill(-np.inf)
            bias[self._allowed] = kept
        last = tuple(last_ids)
        for *before, banned in self._words:
            if not before or last[-len(before) :] == tuple(before):
                bias[banned] = -np.inf
        if num_answered < self._min_tokens:
            ends = bias[self._end_ids]
            bias[self._end_ids] = -np.inf
            if np.isneginf(bias).all():
                bias[self._end_ids] = ends
