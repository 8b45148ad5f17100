"""Many requests on one model: add them, step, and each gets the bits it would get alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Protocol, TypeVar

import numpy as np

from samebits.cache import PageCache
from samebits.core.errors import BadInput
from samebits.engine.job import Generation, Job
from samebits.engine.rows import POOLINGS, Embedding, Scoring
from samebits.engine.runner import Runner, StepResult
from samebits.engine.sampler import Drawn, Sampler, check_bias
from samebits.engine.sampling import SamplingParams, TokenMask
from samebits.loaders import Tokenizer
from samebits.scheduler import Policy, Request, Scheduler, Sequence, StepPlan

CANCELLED, DEADLINE = "cancelled", "deadline"
AnyJob = TypeVar("AnyJob", bound=Job)


@dataclass(frozen=True)
class StepStats:
    """One step, for those who watch."""

    seconds: float
    num_decodes: int
    num_prefill_tokens: int
    num_running: int
    num_waiting: int
    num_used_pages: int
    num_free_pages: int


class Observer(Protocol):
    """What is told of an engine's work; called between steps, so it should be quick."""

    def stepped(self, stats: StepStats) -> None: ...

    def ended(self, job: Job) -> None: ...


class Engine:
    """Steps a model over all requests at once. One thread at a time; AsyncEngine is for many.

    deadlines are times of `clock`, in seconds.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer | None = None,
        policy: Policy | None = None,
        *,
        shares_prefixes: bool = True,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = runner.limits
        self.runner, self.tokenizer, self.observer, self.clock = runner, tokenizer, observer, clock
        policy = policy or Policy(prefill_budget=limits.max_tokens - limits.max_sequences + 1)
        if policy.max_step_tokens(limits.max_sequences) > limits.max_tokens:
            needed = f"at most {limits.max_tokens}, what the model's step was built for"
            raise BadInput("engine", "tokens a step", policy.max_step_tokens(limits.max_sequences), needed)
        pages = PageCache(
            limits.num_pages, limits.page_size, limits.max_sequences, limits.max_positions, window=runner.window
        )
        self.scheduler = Scheduler(pages, policy, shares_prefixes=shares_prefixes)
        self._sampler = Sampler(runner.found, runner.tier, runner.vocab_size, limits.max_tokens)
        self._jobs: dict[Sequence, Job] = {}
        self._deadlines: list[tuple[float, int, Job]] = []  # a heap

    @property
    def max_len(self) -> int:
        """Tokens a sequence may have, prompt and answer."""
        return self.scheduler.pages.max_len

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """A line for each op that does not run on the backend, sampling included."""
        return (*self.runner.fallbacks, *self._sampler.fallbacks)

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    def generate(
        self,
        prompt: Iterable[int],
        params: SamplingParams,
        *,
        priority: int = 0,
        salt: bytes = b"",
        deadline: float | None = None,
        make_mask: Callable[[], TokenMask] | None = None,
    ) -> Generation:
        """Queues a prompt; its pieces come with the steps. BadInput where it can never run."""
        if self.tokenizer is None:
            raise BadInput("engine", "tokenizer", "none", "one, to turn answers into text")
        tokens = self._checked("generate", "prompt", "no tokens", prompt, self.max_len - 1)
        check_bias(params, self.runner.vocab_size)
        job = Generation(self.tokenizer, tokens, params.with_seed(), self.max_len, make_mask, deadline)
        return self._add(job, Request(tokens, params.n, priority, salt))

    def score(self, tokens: Iterable[int], *, top_k: int = 0, keep_logits: bool = False) -> Scoring:
        """Queues a text whose log-probabilities are wanted at every position."""
        ids = self._checked("score", "tokens", "none", tokens, self.max_len)
        return self._add(Scoring(ids, top_k, keep_logits), Request(ids, wants_all=True))

    def embed(self, tokens: Iterable[int], pooling: str = "mean") -> Embedding:
        """Queues a text whose hidden states are wanted, their mean or the last one."""
        if pooling not in POOLINGS:
            raise BadInput("embed", "pooling", pooling, " or ".join(POOLINGS))
        ids = self._checked("embed", "tokens", "none", tokens, self.max_len)
        return self._add(Embedding(ids, pooling), Request(ids, wants_all=True))

    def cancel(self, job: Job, reason: str = CANCELLED) -> None:
        """Ends a job now, with what it has; nothing for one that has ended."""
        for sequence in job.sequences:
            self.scheduler.finish(sequence)
            self._jobs.pop(sequence, None)
        if job.cut(reason):
            self._ended(job)

    def step(self) -> bool:
        """Computes one step; False where there was nothing to do.

        What a kernel raises ends the requests of that step, with its text, and no other.
        """
        start = self.clock()
        while self._deadlines and self._deadlines[0][0] <= start:
            self.cancel(heappop(self._deadlines)[2], DEADLINE)
        plan = self.scheduler.plan()
        if plan is None:
            return False
        try:
            result = self._run(plan)
            drawn = self._draw(plan, result)
        except Exception as error:
            self._fail({self._jobs[s] for s in plan.sequences}, f"{type(error).__name__}: {error}")
            return True
        self.scheduler.commit(plan, drawn.tokens)
        self._deliver(plan, result, drawn)
        if self.observer:
            self.observer.stepped(self._stats(plan, self.clock() - start))
        return True

    def complete(self, *jobs: Job) -> None:
        """Steps until these have ended; what interrupts that ends them too."""
        try:
            while not all(job.is_done for job in jobs) and self.step():
                pass
        finally:
            for job in jobs:
                self.cancel(job)

    def _checked(self, where: str, name: str, nothing: str, tokens: Iterable[int], longest: int) -> np.ndarray:
        ids = list(tokens)
        if not ids:
            raise BadInput(where, name, nothing, "at least one")
        if len(ids) > longest:
            raise BadInput(where, name, f"{len(ids)} tokens", f"fewer than {longest + 1}")
        wrong = next((i for i in ids if not 0 <= i < self.runner.vocab_size), None)
        if wrong is not None:
            raise BadInput(where, "token id", wrong, f"0 .. {self.runner.vocab_size - 1}")
        return np.array(ids, np.int32)

    def _add(self, job: AnyJob, request: Request) -> AnyJob:
        job.arrived_at = self.clock()
        job.sequences = self.scheduler.add(request)
        if job.deadline is not None:
            due: tuple[float, int, Job] = (job.deadline, id(job), job)
            heappush(self._deadlines, due)
        self._jobs.update(dict.fromkeys(job.sequences, job))
        return job

    def _run(self, plan: StepPlan) -> StepResult:
        self.runner.copy_pages(plan.copies)
        return self.runner.run(plan)

    def _draw(self, plan: StepPlan, result: StepResult) -> Drawn:
        if not plan.sampled:
            result.wait()
            return Drawn(np.zeros(0, np.int32), {})
        answers = [self._jobs[s].answer(s.sample_index) for s in plan.sampled]
        return self._sampler.draw(result, plan.sampled_rows, answers)

    def _deliver(self, plan: StepPlan, result: StepResult, drawn: Drawn) -> None:
        now = self.clock()
        for i, reason in drawn.failures.items():
            if job := self._jobs.get(plan.sampled[i]):
                self._fail([job], reason)
        tokens, rows = drawn.tokens.tolist(), plan.sampled_rows.tolist()
        for sequence, token, row in zip(plan.sampled, tokens, rows, strict=True):
            job = self._jobs.get(sequence)  # none where another sample of the request failed
            if job and job.take(sequence.sample_index, token, partial(result.logits_of, row), now):
                self._finish(job, sequence)
        for scored in plan.scored:
            job = self._jobs[scored.sequence]
            rows_of_job = slice(scored.first_row, scored.first_row + scored.count)
            if job.take_rows(scored.position, result.logits[rows_of_job], result.hidden[rows_of_job]):
                self._finish(job, scored.sequence)

    def _finish(self, job: Job, sequence: Sequence) -> None:
        self.scheduler.finish(sequence)
        del self._jobs[sequence]
        if job.is_done:
            self._ended(job)

    def _fail(self, jobs: Iterable[Job], reason: str) -> None:
        for job in jobs:
            job.error = reason
            self.cancel(job, "error")

    def _ended(self, job: Job) -> None:
        job.ended_at = self.clock()
        if self.observer:
            self.observer.ended(job)

    def _stats(self, plan: StepPlan, seconds: float) -> StepStats:
        scheduler = self.scheduler
        pages = scheduler.pages
        return StepStats(
            seconds,
            plan.num_decodes,
            plan.num_prefill_tokens,
            scheduler.num_running,
            scheduler.num_waiting,
            pages.num_used,
            pages.num_free,
        )
