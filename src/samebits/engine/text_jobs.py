"""Jobs on every token of a text: how likely it is, and what the model makes of it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from samebits.core.errors import BadInput
from samebits.engine.job import DEADLINE, DeadlinePassed, Job, RequestFailed, num_known_rows
from samebits.engine.text_logprobs import TextLogprobs

POOLINGS = ("mean", "last")


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


class TextJob(Job):
    """Done when all of its tokens have come, or when it was cut."""

    def __init__(self, tokens: np.ndarray, deadline: float | None) -> None:
        super().__init__()
        self._tokens, self.deadline = tokens, deadline
        self._cut_reason: str | None = None
        self.num_taken = 0  # tokens whose rows have come

    @property
    def is_done(self) -> bool:
        return self._cut_reason is not None or self.num_taken == len(self._tokens)

    def cut(self, reason: str) -> bool:
        if self.is_done:
            return False
        self._cut_reason = reason
        return True

    def fail(self, reason: str) -> bool:
        if not self.is_done:
            self.error = reason
        return self.cut("error")

    def take_rows(self, position: int, logits: np.ndarray, hidden: np.ndarray) -> bool:
        first = num_known_rows(self.num_taken, position)
        if first < len(logits):
            self._take(logits[first:], hidden[first:])
            self.num_taken = position + len(logits)
        return self.is_done

    def _take(self, logits: np.ndarray, hidden: np.ndarray) -> None:
        """The rows of the next tokens."""
        raise NotImplementedError

    def check(self) -> None:
        """RequestFailed where it failed or was cut, BadInput where it is not done: a part of a text has no result."""
        super().check()
        if not self.is_done:
            raise BadInput("job", "text", f"{self.num_taken} of {len(self._tokens)} tokens", "all of them")
        if self._cut_reason is not None:
            kind = DeadlinePassed if self._cut_reason == DEADLINE else RequestFailed
            raise kind(f"{self._cut_reason} after {self.num_taken} of {len(self._tokens)} tokens")


class Scoring(TextJob):
    """How likely a model finds a text."""

    def __init__(self, tokens: np.ndarray, top_k: int, keep_logits: bool, deadline: float | None = None) -> None:
        super().__init__(tokens, deadline)
        self._keep_logits = keep_logits
        self._digest, self._logprobs = hashlib.sha256(), TextLogprobs(tokens, top_k)
        self._kept: list[np.ndarray] = []

    def _take(self, logits: np.ndarray, hidden: np.ndarray) -> None:
        self._digest.update(logits.tobytes())
        self._logprobs.take(logits)
        if self._keep_logits:
            self._kept.append(logits.copy())

    def score(self) -> Score:
        """The whole result; RequestFailed where the request failed."""
        self.check()
        logits = np.concatenate(self._kept) if self._kept else None
        ids, found = tuple(self._tokens.tolist()), self._logprobs.found()
        return Score(ids, found.token_logprobs, found.top, self._digest.hexdigest(), logits)


class Embedding(TextJob):
    """One vector for a text: the mean of the model's last states, added in order, or the last one."""

    def __init__(self, tokens: np.ndarray, pooling: str, deadline: float | None = None) -> None:
        super().__init__(tokens, deadline)
        self._pooling = pooling
        self._vector: np.ndarray | None = None

    def _take(self, logits: np.ndarray, hidden: np.ndarray) -> None:
        for row in hidden:  # one by one: the same sum however the text was cut
            self._vector = row.copy() if self._vector is None or self._pooling == "last" else self._vector + row

    def vector(self) -> np.ndarray:
        """float32 [hidden] of length 1, or zeros; RequestFailed where the request failed."""
        self.check()
        if self._vector is None:
            raise BadInput("embed", "vector", "an unfinished text", "a finished one")
        mean = self._vector.astype(np.float64) / (len(self._tokens) if self._pooling == "mean" else 1)
        length = math.sqrt(math.fsum((mean * mean).tolist()))
        return (mean / length if length else mean).astype(np.float32)
