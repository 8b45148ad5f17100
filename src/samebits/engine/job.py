"""What an engine works on; results gather as steps bring them. Prompts to continue; text_jobs.py has the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from samebits.core.errors import BadInput, SamebitsError
from samebits.engine.answer import Answer, Completion, Piece, end_ids
from samebits.engine.bans import Bans
from samebits.engine.logprobs import TokenLogprobs
from samebits.engine.request_options import NO_OPTIONS, RequestOptions
from samebits.engine.runner import LogitsRow
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_logprobs import PromptLogprobs, TextLogprobs
from samebits.loaders import Tokenizer
from samebits.scheduler import Sequence

if TYPE_CHECKING:
    from samebits.receipts.record import Receipt, Said


DEADLINE = "deadline"  # the reason for which a job is cut when its time is over


class RequestFailed(SamebitsError):
    """A request ended without an answer through no mistake of its own; the text is the reason."""


class DeadlinePassed(RequestFailed):
    """A request that has no partial answer ran past its deadline."""


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
        """Ends what is not done; False where all was. What it raises leaves the job open: `fail` ends it."""
        raise NotImplementedError

    def fail(self, reason: str) -> bool:
        """Ends what is not done, for this reason; False where all was. It runs no code that could raise."""
        raise NotImplementedError

    def answer(self, sample_index: int) -> Answer:
        raise BadInput("job", "sample", sample_index, "a job that draws tokens")

    def take(
        self,
        sample_index: int,
        token: int,
        row: LogitsRow,
        logprobs: TokenLogprobs | None,
        now: float,
    ) -> bool:
        """A token for one sample, its row of logits, logprobs where asked for; True when the sample ends with it."""
        raise BadInput("job", "token", token, "a job that draws tokens")

    def take_rows(self, position: int, logits: np.ndarray, hidden: np.ndarray) -> bool:
        """Logits [count, vocab] and states [count, hidden] of tokens from `position` on; True after the last.

        Those that come again after a preemption are the same.
        """
        raise BadInput("job", "logits", f"{len(logits)} rows", "a job on every token")

    def known_tokens(self, sequence: Sequence) -> np.ndarray:
        """Return int32 [tokens]: the prompt of one of the job's sequences and what was handed out of its answer."""
        return sequence.request.prompt

    def check(self) -> None:
        """RequestFailed where it failed."""
        if self.error is not None:
            raise RequestFailed(self.error)


def num_known_rows(num_taken: int, position: int) -> int:
    """Of rows from token `position` on, how many came already, before a preemption; BadInput where some are missing."""
    if position > num_taken:
        raise BadInput("job", "rows", f"those of token {position} on", f"those of token {num_taken}")
    return num_taken - position


class Generation(Job):
    """Answers to one prompt; `events` holds (number of the answer, piece) until someone takes them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: np.ndarray,
        params: SamplingParams,
        max_len: int,
        options: RequestOptions = NO_OPTIONS,
        issue: Callable[[int, Said], Receipt] | None = None,
    ) -> None:
        """issue: makes the receipt of a sample's answer."""
        super().__init__()
        self.prompt, self.params, self.deadline = prompt, params, options.deadline
        samples = options.sample_indices
        bans = Bans(tokenizer, params, end_ids(tokenizer, params))
        self.answers = [
            Answer(
                tokenizer,
                prompt,
                params,
                i,
                max_len,
                options,
                bans,
                partial(issue, i) if issue else None,
            )
            for i in (range(params.n) if samples is None else samples)
        ]
        self._of_prompt = None if params.prompt_logprobs is None else TextLogprobs(prompt, params.prompt_logprobs)
        self.events: deque[tuple[int, Piece]] = deque()
        self._num_open = len(self.answers)

    @property
    def is_done(self) -> bool:
        return self._num_open == 0

    def answer(self, sample_index: int) -> Answer:
        return self.answers[sample_index]

    def known_tokens(self, sequence: Sequence) -> np.ndarray:
        drawn = self.answers[sequence.sample_index].token_ids if sequence.request.draws else ()
        return np.concatenate([self.prompt, np.array(drawn, np.int32)])

    def take(
        self,
        sample_index: int,
        token: int,
        row: LogitsRow,
        logprobs: TokenLogprobs | None,
        now: float,
    ) -> bool:
        if self.first_token_at is None:
            self.first_token_at = now
        piece = self.answers[sample_index].push(token, row, logprobs)
        self.events.append((sample_index, piece))
        self._num_open -= piece.finish_reason is not None
        return piece.finish_reason is not None

    def take_rows(self, position: int, logits: np.ndarray, hidden: np.ndarray) -> bool:
        if self._of_prompt is None:
            return super().take_rows(position, logits, hidden)
        of_prompt = logits[: len(self.prompt) - position]  # after a preemption those of the answer come too
        self._of_prompt.take(of_prompt[num_known_rows(self._of_prompt.num_taken, position) :])
        if self.params.max_tokens or self._of_prompt.num_taken < len(self.prompt):
            return False
        self.end_empty()
        return True

    def end_empty(self, reason: str = "length") -> None:
        """Ends answers of which no token is wanted."""
        self._end(lambda answer: answer.cut(reason))

    @property
    def num_cached_tokens(self) -> int:
        """Of the prompt, that did not have to be computed."""
        return min(self.sequences[0].num_cached_tokens, len(self.prompt)) if self.sequences else 0

    @property
    def num_answer_tokens(self) -> int:
        """Drawn so far, of all answers."""
        return sum(len(answer.token_ids) for answer in self.answers)

    @property
    def prompt_logprobs(self) -> PromptLogprobs | None:
        """What has come of the prompt's log-probabilities: all of it once a token was drawn. None if not asked for."""
        return self._of_prompt.found() if self._of_prompt else None

    def cut(self, reason: str) -> bool:
        return self._end(lambda answer: answer.cut(reason))

    def fail(self, reason: str) -> bool:
        if self._num_open:
            self.error = reason
        return self._end(Answer.fail)

    def _end(self, end: Callable[[Answer], Piece]) -> bool:
        was_open = self._num_open > 0
        for i, answer in enumerate(self.answers):
            if answer.finish_reason is None:
                self.events.append((i, end(answer)))
        self._num_open = 0
        return was_open

    def completions(self) -> list[Completion]:
        """All answers; RequestFailed where the request failed."""
        self.check()
        of_prompt = self.prompt_logprobs
        return [answer.completion(of_prompt) for answer in self.answers]
