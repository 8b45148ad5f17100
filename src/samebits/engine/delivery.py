"""A step's tokens and rows on their way to the jobs they are for; what one job raises is its own failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from samebits.engine.faults import reason_of
from samebits.engine.job import Job
from samebits.engine.logprobs import TokenLogprobs, token_logprobs
from samebits.engine.runner import StepResult
from samebits.engine.sampler import Drawn
from samebits.scheduler import Sequence, StepPlan
from samebits.scheduler.step import Scored


@dataclass(frozen=True)
class Delivery:
    """One step's. A job that has ended, perhaps by this very delivery, is not among `jobs` and gets nothing more.

    finish  ends a sample that has all it wants
    fail    ends a job with a reason
    """

    jobs: Mapping[Sequence, Job]
    result: StepResult
    finish: Callable[[Job, Sequence], None]
    fail: Callable[[Job, str], None]

    def deliver(self, plan: StepPlan, drawn: Drawn, now: float) -> None:
        """Hands out everything; `now` is the engine's clock."""
        for i, reason in drawn.failures.items():
            self._fail_all([plan.sampled[i]], reason)
        for scored in plan.scored:  # ahead of the tokens, which may end their job
            if job := self.jobs.get(scored.sequence):
                self._give(job, scored.sequence, partial(self._take_rows, job, scored))
        tokens, rows = drawn.tokens.tolist(), plan.sampled_rows.tolist()
        logprobs = self._logprobs(plan.sampled, tokens, rows)
        for i, sequence in enumerate(plan.sampled):
            if job := self.jobs.get(sequence):
                row = partial(self.result.logits_of, rows[i])
                self._give(
                    job, sequence, partial(job.take, sequence.sample_index, tokens[i], row, logprobs.get(i), now)
                )

    def _give(self, job: Job, sequence: Sequence, take: Callable[[], bool]) -> None:
        """Runs a tokenizer, a mask and such; what they raise fails this job alone."""
        try:
            is_finished = take()
        except BaseException as error:
            self.fail(job, reason_of(error))
            return
        if is_finished:
            self.finish(job, sequence)

    def _take_rows(self, job: Job, scored: Scored) -> bool:
        rows = slice(scored.first_row, scored.first_row + scored.count)
        return job.take_rows(scored.position, self.result.logits[rows], self.result.hidden[rows])

    def _logprobs(self, sampled: list[Sequence], tokens: list[int], rows: list[int]) -> dict[int, TokenLogprobs]:
        """By number in `sampled`, for those that ask, computed together. What that raises fails them."""
        wanted: dict[int, int] = {}
        for i, sequence in enumerate(sampled):
            job = self.jobs.get(sequence)
            count = job.answer(sequence.sample_index).params.logprobs if job else None
            if count is not None:
                wanted[i] = count
        if not wanted:
            return {}
        try:
            logits = self.result.logits[[rows[i] for i in wanted]]
            found = token_logprobs(logits, [tokens[i] for i in wanted], list(wanted.values()))
        except BaseException as error:
            self._fail_all([sampled[i] for i in wanted], reason_of(error))
            return {}
        return dict(zip(wanted, found, strict=True))

    def _fail_all(self, sequences: list[Sequence], reason: str) -> None:
        for sequence in sequences:
            if job := self.jobs.get(sequence):
                self.fail(job, reason)
