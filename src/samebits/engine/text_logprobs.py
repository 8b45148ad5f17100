"""How likely each token of a text is, gathered as the rows of its logits come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samebits.engine.logprobs import likeliest, log_probabilities


@dataclass(frozen=True)
class PromptLogprobs:
    """token_logprobs[i] is the log-probability of token i + 1 given those before it.

    top   the likeliest next tokens at every position, the last one included
    """

    token_logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]


class TextLogprobs:
    """Log-probabilities of a text's tokens, int32 [tokens], and of the `top_k` likeliest in their places."""

    def __init__(self, tokens: np.ndarray, top_k: int) -> None:
        self._tokens, self._top_k = tokens, top_k
        self._logprobs: list[float] = []
        self._top: list[tuple[tuple[int, float], ...]] = []

    @property
    def num_taken(self) -> int:
        """Tokens whose rows have come."""
        return len(self._top)

    def take(self, logits: np.ndarray) -> None:
        """The rows [count, vocab] of the next tokens."""
        if not len(logits):
            return
        for row in log_probabilities(logits):
            following = len(self._top) + 1
            if following < len(self._tokens):
                self._logprobs.append(float(row[self._tokens[following]]))
            self._top.append(likeliest(row, self._top_k))

    def found(self) -> PromptLogprobs:
        """What has come so far."""
        return PromptLogprobs(tuple(self._logprobs), tuple(self._top))
