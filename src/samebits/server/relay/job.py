"""A request that others answer, as its pieces come: what a server asks of a Generation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samebits.engine.answer import Completion, Piece, gathered
from samebits.engine.job import RequestFailed
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_logprobs import PromptLogprobs


class RelayedJob:
    """Answers to one prompt. Times are those of the asker's clock, in seconds."""

    def __init__(self, prompt: np.ndarray, params: SamplingParams, arrived_at: float) -> None:
        self.prompt, self.params, self.arrived_at = prompt, params, arrived_at
        self.first_token_at: float | None = None
        self.ended_at: float | None = None
        self.error: str | None = None
        self.num_cached_tokens = 0
        self.prompt_logprobs: PromptLogprobs | None = None
        self.pieces: list[list[Piece]] = [[] for _ in range(params.n)]
        self._has_first = False

    def take_first(self, num_cached_tokens: int, prompt_logprobs: PromptLogprobs | None) -> None:
        """What was found of the prompt; whoever goes on with an answer has nothing to add."""
        if not self._has_first:
            self.num_cached_tokens, self.prompt_logprobs, self._has_first = num_cached_tokens, prompt_logprobs, True

    def take(self, sample: int, piece: Piece, now: float) -> None:
        if self.first_token_at is None:
            self.first_token_at = now
        self.pieces[sample].append(piece)
        if self.is_done:
            self.ended_at = now

    def is_finished(self, sample: int) -> bool:
        pieces = self.pieces[sample]
        return bool(pieces) and pieces[-1].finish_reason is not None

    @property
    def is_done(self) -> bool:
        return all(map(self.is_finished, range(self.params.n)))

    def token_ids(self, sample: int) -> tuple[int, ...]:
        return tuple(p.token_id for p in self.pieces[sample] if p.token_id is not None)

    def unfinished(self, samples: Sequence[int]) -> tuple[int, ...]:
        return tuple(sample for sample in samples if not self.is_finished(sample))

    @property
    def num_answer_tokens(self) -> int:
        return sum(len(self.token_ids(sample)) for sample in range(self.params.n))

    def check(self) -> None:
        """RequestFailed where it failed."""
        if self.error is not None:
            raise RequestFailed(self.error)

    def completions(self) -> list[Completion]:
        """All answers; RequestFailed where the request failed."""
        self.check()
        return [gathered(pieces, self.params, self.prompt_logprobs) for pieces in self.pieces]
