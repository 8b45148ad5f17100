"""What an engine works on: a prompt to continue, or a text to score. Results gather here as steps bring them."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samebits.core.errors import BadInput, SamebitsError
from samebits.engine.answer import Answer, Completion, Piece
from samebits.engine.sampling import SamplingParams, TokenMask, likeliest, log_probabilities
from samebits.loaders import Tokenizer
from samebits.scheduler import Sequence


class RequestFailed(SamebitsError):
    """A request ended without an answer through no mistake of its own; the text is the reason."""


class Job:
    """Times are the engine's clock, in seconds; `error` is why it failed."""

    deadline: float | None = None
    arrived_at = 0.0
    first_token_at: float | None = None
    ended_at: float | None = None
    error: str | None = None

    def __init__(self) -> None:
        self.sequences: list[Sequence] = []

    @property
    def is_done(self) -> bool:
        raise NotImplementedError

    def cut(self, reason: str) -> bool:
        """Ends what is not done; False where all was."""
        raise NotImplementedError

    def answer(self, sample_index: int) -> Answer:
        raise BadInput("job", "sample", sample_index, "a job that draws tokens")

    def take(self, sample_index: int, token: int, logits: np.ndarray, now: float) -> bool:
        """A token for one sample; True when that sample is finished with it."""
        raise BadInput("job", "token", token, "a job that draws tokens")

    def take_rows(self, position: int, logits: np.ndarray) -> bool:
        """Logits [count, vocab] of the tokens from `position` on; True when they were the last."""
        raise BadInput("job", "logits", f"{len(logits)} rows", "a job that scores")

    def check(self) -> None:
        """RequestFailed where it failed."""
        if self.error is not None:
            raise RequestFailed(self.error)


class Generation(Job):
    """`n` answers to one prompt; `events` holds (sample, piece) until someone takes them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: np.ndarray,
        params: SamplingParams,
        max_len: int,
        make_mask: Callable[[], TokenMask] | None,
        deadline: float | None,
    ) -> None:
        super().__init__()
        self.prompt, self.params, self.deadline = prompt, params, deadline
        self.answers = [
            Answer(tokenizer, prompt, params, i, max_len, make_mask() if make_mask else None) for i in range(params.n)
        ]
        self.events: deque[tuple[int, Piece]] = deque()
        self._num_open = params.n

    @property
    def is_done(self) -> bool:
        return self._num_open == 0

    def answer(self, sample_index: int) -> Answer:
        return self.answers[sample_index]

    def take(self, sample_index: int, token: int, logits: np.ndarray, now: float) -> bool:
        if self.first_token_at is None:
            self.first_token_at = now
        piece = self.answers[sample_index].push(token, logits)
        self.events.append((sample_index, piece))
        self._num_open -= piece.finish_reason is not None
        return piece.finish_reason is not None

    def cut(self, reason: str) -> bool:
        was_open = self._num_open > 0
        for i, answer in enumerate(self.answers):
            if answer.finish_reason is None:
                self.events.append((i, answer.cut(reason)))
        self._num_open = 0
        return was_open

    def completions(self) -> list[Completion]:
        """All answers; RequestFailed where the request failed."""
        self.check()
        return [answer.completion() for answer in self.answers]


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


class Scoring(Job):
    """How likely a model finds a text."""

    def __init__(self, tokens: np.ndarray, top_k: int, keep_logits: bool) -> None:
        super().__init__()
        self._tokens, self._top_k, self._keep_logits = tokens, top_k, keep_logits
        self._digest = hashlib.sha256()
        self._logprobs: list[float] = []
        self._top: list[tuple[tuple[int, float], ...]] = []
        self._kept: list[np.ndarray] = []
        self._is_cut = False

    @property
    def is_done(self) -> bool:
        return self._is_cut or len(self._top) == len(self._tokens)

    def cut(self, reason: str) -> bool:
        was_open = not self.is_done
        self._is_cut = was_open
        return was_open

    def take_rows(self, position: int, logits: np.ndarray) -> bool:
        fresh = logits[len(self._top) - position :]  # those computed again after a preemption are the same
        self._digest.update(fresh.tobytes())
        for row in log_probabilities(fresh):
            following = len(self._top) + 1
            if following < len(self._tokens):
                self._logprobs.append(float(row[self._tokens[following]]))
            self._top.append(tuple(likeliest(row, self._top_k)))
        if self._keep_logits:
            self._kept.append(fresh.copy())
        return self.is_done

    def score(self) -> Score:
        """The whole result; RequestFailed where the request failed."""
        self.check()
        logits = np.concatenate(self._kept) if self._kept else None
        ids = tuple(self._tokens.tolist())
        return Score(ids, tuple(self._logprobs), tuple(self._top), self._digest.hexdigest(), logits)
