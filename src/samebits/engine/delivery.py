"""A step's tokens and rows on their way to the jobs they are for; what one job raises is its own failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from samebits.engine.answer import Answer
from samebits.engine.faults import reason_of
from samebits.engine.job import Job
from samebits.engine.logprobs import TokenLogprobs, token_logprobs
from samebits.engine.runner import StepResult
from samebits.scheduler import Sequence
from samebits.scheduler.step import Scored


class Run(NamedTuple):
    """Tokens that a sequence drew one after another, from the rows of logits from first_row on."""

    sequence: Sequence
    first_row: int
    tokens: list[int]


class Delivery:
    """One step's. A job that has ended, perhaps by this very delivery, gets nothing more.

    What ends is only noted, so that the scheduler can take the step before it lets go of sequences: `settle` ends it.
    """

    def __init__(self, jobs: Mapping[Sequence, Job], result: StepResult, clock: Callable[[], float]) -> None:
        self._jobs, self._result, self._clock = jobs, result, clock
        self._ends: list[tuple[Job, Sequence, str | None]] = []  # and the reason of a failure
        self._over: set[Sequence | Job] = set()  # finished sequences, failed jobs

    def open_job(self, sequence: Sequence) -> Job | None:
        """The job of a sequence that may get more; None where it has ended."""
        job = self._jobs.get(sequence)
        return None if job in self._over or sequence in self._over else job

    def fail(self, sequence: Sequence, reason: str) -> None:
        """The job of this sequence fails, all of it."""
        if job := self.open_job(sequence):
            self._over.add(job)
            self._ends.append((job, sequence, reason))

    def give_rows(self, scored: Scored) -> None:
        """Rows of every token, for a job that wants them."""
        if job := self.open_job(scored.sequence):
            self._give(job, scored.sequence, partial(self._take_rows, job, scored))

    def give(self, runs: list[Run]) -> list[int]:
        """Tokens, in order; returns how many each sequence took: fewer than there are where it ended."""
        now = self._clock()
        readers = [run for run in runs if (answer := self._open_answer(run)) and answer.reads_logits]
        logprobs = self._logprobs(readers) if readers else {}
        self._hash_rows(readers)
        return [self._give_run(run, logprobs.get(run.sequence), now) for run in runs]

    def ends(self, reason: str) -> dict[Job, str]:
        """Return the jobs of which something has ended, each with its own failure or else with this reason."""
        found = {job: reason for job, _, failure in self._ends if failure is None}
        return found | {job: failure for job, _, failure in self._ends if failure is not None}

    def settle(self, finish: Callable[[Job, Sequence], None], fail: Callable[[Job, str], None]) -> None:
        """Ends what has ended: `finish` a sample that has all it wants, `fail` a job for a reason."""
        for job, sequence, reason in self._ends:
            if reason is not None:
                fail(job, reason)
            elif sequence in self._jobs:  # else a failure took it along
                finish(job, sequence)

    def _give_run(self, run: Run, logprobs: list[TokenLogprobs] | None, now: float) -> int:
        sequence = run.sequence
        for i, token in enumerate(run.tokens):
            if (job := self.open_job(sequence)) is None:
                return i
            row, about = self._result.row(run.first_row + i), logprobs[i] if logprobs else None
            self._give(job, sequence, partial(job.take, sequence.sample_index, token, row, about, now))
        return len(run.tokens)

    def _open_answer(self, run: Run) -> Answer | None:
        job = self.open_job(run.sequence)
        return None if job is None else job.answer(run.sequence.sample_index)

    def _hash_rows(self, runs: list[Run]) -> None:
        """Those of answers with a receipt, all at once."""
        rows = [
            run.first_row + i
            for run in runs
            if (answer := self._open_answer(run)) and answer.chain
            for i in range(len(run.tokens))
        ]
        if len(rows) > 1:
            self._result.hash_rows(rows)

    def _give(self, job: Job, sequence: Sequence, take: Callable[[], bool]) -> None:
        """Runs a tokenizer, a mask and such; what they raise fails this job alone."""
        try:
            is_finished = take()
        except BaseException as error:
            self.fail(sequence, reason_of(error))
            return
        if is_finished:
            self._over.add(sequence)
            self._ends.append((job, sequence, None))

    def _take_rows(self, job: Job, scored: Scored) -> bool:
        rows = slice(scored.first_row, scored.first_row + scored.count)
        return job.take_rows(scored.position, self._result.logits[rows], self._result.hidden[rows])

    def _logprobs(self, runs: list[Run]) -> dict[Sequence, list[TokenLogprobs]]:
        """Of every token, by sequence, for those that ask, computed together. What that raises fails them."""
        wanted: list[tuple[Run, int]] = []
        for run in runs:
            answer = self._open_answer(run)
            if answer and answer.params.logprobs is not None:
                wanted.append((run, answer.params.logprobs))
        if not wanted:
            return {}
        rows = [run.first_row + i for run, _ in wanted for i in range(len(run.tokens))]
        tokens = [token for run, _ in wanted for token in run.tokens]
        counts = [count for run, count in wanted for _ in run.tokens]
        try:
            found = iter(token_logprobs(self._result.logits[rows], tokens, counts))
        except BaseException as error:
            for run, _ in wanted:
                self.fail(run.sequence, reason_of(error))
            return {}
        return {run.sequence: list(islice(found, len(run.tokens))) for run, _ in wanted}
