"""What the server asks of an engine, in this process or behind others, and of the answers that it streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

import numpy as np

from samebits.engine.answer import Completion, Piece
from samebits.engine.request_options import NO_OPTIONS, RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_logprobs import PromptLogprobs


class Answering(Protocol):
    """One request as far as it is answered; engine/job.py's Generation says what the parts are."""

    arrived_at: float
    first_token_at: float | None
    ended_at: float | None

    @property
    def prompt(self) -> np.ndarray: ...

    @property
    def params(self) -> SamplingParams: ...

    @property
    def num_cached_tokens(self) -> int: ...

    @property
    def num_answer_tokens(self) -> int: ...

    @property
    def prompt_logprobs(self) -> PromptLogprobs | None: ...

    def completions(self) -> list[Completion]: ...

    def check(self) -> None: ...


class AnswerStream(Protocol):
    """(sample, piece) as they come: iterate once, or have them delivered. `close` ends it early, at any time."""

    @property
    def job(self) -> Answering: ...

    def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]: ...

    def deliver_to(self, give: Callable[[tuple[int, Piece] | None], None]) -> None: ...

    def close(self) -> None: ...


class ServingEngine(Protocol):
    """What AsyncEngine is to a server."""

    failure: str | None

    @property
    def is_alive(self) -> bool: ...

    def clock(self) -> float:
        """The time in seconds, as deadlines count it."""

    async def generate(
        self, prompt: Iterable[int], params: SamplingParams, options: RequestOptions = NO_OPTIONS
    ) -> AnswerStream: ...

    async def embed(self, tokens: Iterable[int], pooling: str, *, deadline: float | None) -> np.ndarray: ...

    def close(self) -> None: ...
