"""How likely a model finds a text: log-probabilities per position, and a hash of the logits behind them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from samebits.core.errors import BadInput
from samebits.engine.generation import Sequence
from samebits.engine.runner import Runner
from samebits.engine.sampling import likeliest, log_probabilities


@dataclass(frozen=True)
class Score:
    """token_logprobs[i] is the log-probability of token i + 1 given those before it."""

    token_ids: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]  # the likeliest next tokens at every position
    logits_sha256: str  # over the float32 logits of all positions
    logits: np.ndarray | None = None  # [n, vocab] where asked for

    @property
    def log_likelihood(self) -> float:
        return math.fsum(self.token_logprobs)

    @property
    def perplexity(self) -> float | None:
        """None for a text of one token: nothing was predicted."""
        count = len(self.token_logprobs)
        return math.exp(-self.log_likelihood / count) if count else None


def score(runner: Runner, token_ids: list[int], *, top_k: int = 0, keep_logits: bool = False) -> Score:
    """Scores a token sequence in one pass; BadInput for an empty one or an id outside the vocabulary."""
    if not token_ids:
        raise BadInput("score", "tokens", "none", "at least one")
    digest, log_probs, top, kept = hashlib.sha256(), [], [], []
    position = 0
    for result in Sequence(runner).extend(list(token_ids), rows="all"):
        digest.update(result.logits.tobytes())
        rows = log_probabilities(result.logits)
        for row in rows:
            position += 1
            if position < len(token_ids):
                log_probs.append(float(row[token_ids[position]]))
            top.append(tuple(likeliest(row, top_k)))
        if keep_logits:
            kept.append(result.logits.copy())
    logits = np.concatenate(kept) if kept else None
    return Score(tuple(token_ids), tuple(log_probs), tuple(top), digest.hexdigest(), logits)
