"""Many requests on one model: add them, step, and each gets the bits it would get alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from samebits.cache import PageCache, PageListener
from samebits.core.errors import BadInput, SamebitsError
from samebits.core.sampling_defaults import NEUTRAL, SamplingDefaults
from samebits.core.tiers import Tier
from samebits.engine.checks import checked_ids, checked_samples, expected_ids
from samebits.engine.delivery import Delivery
from samebits.engine.drafts.drafter import Drafter
from samebits.engine.drafts.pace import pace_of
from samebits.engine.drafts.speculation import NOTHING, Speculation
from samebits.engine.drafts.verify import Taken, draw_and_deliver
from samebits.engine.faults import described, is_interrupt
from samebits.engine.flight import Flight, NextFlight
from samebits.engine.flight import start as start_flight
from samebits.engine.job import DEADLINE, Generation, Job, RequestFailed
from samebits.engine.observer import Observer, StepStats, Telling
from samebits.engine.request_options import NO_OPTIONS, RequestOptions
from samebits.engine.runner import Runner, StepResult
from samebits.engine.sampler import Sampler, check_ids
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_jobs import POOLINGS, Embedding, Scoring
from samebits.engine.under_way import INTERRUPTED, Changes, StepUnderWay
from samebits.loaders import Tokenizer
from samebits.scheduler import Policy, PromptRequest, Scheduler, Sequence, StepPlan

if TYPE_CHECKING:  # imported with the first receipt
    from samebits.engine.notary import Notary
    from samebits.receipts.record import Model, Receipt, Said

log = logging.getLogger("samebits.engine")
CANCELLED = "cancelled"
AnyJob = TypeVar("AnyJob", bound=Job)


class Engine:
    """Steps a model over all requests at once. One thread at a time; AsyncEngine is for many.

    drafter     guesses at tokens that are then verified several at a time; bits do not depend on it
    deadlines are times of `clock`, in seconds.

    identity  which model it is, for receipts, asked for with the first of them: that may take a while
    defaults  values of the sampling fields that requests leave out
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer | None = None,
        policy: Policy | None = None,
        *,
        shares_prefixes: bool = True,
        drafter: Drafter | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
        identity: Callable[[], Model] | None = None,
        defaults: SamplingDefaults = NEUTRAL,
    ) -> None:
        limits = runner.limits
        self.defaults = defaults
        self.runner, self.tokenizer, self.clock = runner, tokenizer, clock
        self._telling, self._identity = Telling(observer), identity
        policy = policy or Policy(prefill_budget=limits.max_tokens - limits.max_sequences + 1)
        if policy.max_step_tokens(limits.max_sequences) > limits.max_tokens:
            needed = f"at most {limits.max_tokens}, what the model's step was built for"
            raise BadInput("engine", "tokens a step", policy.max_step_tokens(limits.max_sequences), needed)
        first, *further = runner.windows
        pages = PageCache(
            limits.num_pages,
            limits.page_size,
            limits.max_sequences,
            limits.max_positions,
            window=first,
            further=[(w, limits.num_window_pages(w)) for w in further if w is not None],
            num_snapshots=limits.num_snapshots if runner.has_slots else None,
        )
        self.scheduler = Scheduler(pages, policy, shares_prefixes=shares_prefixes)
        self._sampler = Sampler(runner.found, runner.tier, runner.vocab_size, limits.max_tokens, limits.max_sequences)
        if drafter is not None and runner.has_slots:
            needed = "a model that keeps all in pages: states in slots cannot be rolled back"
            raise BadInput("engine", "speculation", "a model with recurrent layers", needed)
        self.speculation = (
            None if drafter is None else Speculation(drafter, runner.vocab_size, pace_of(runner.backend.name))
        )
        self._jobs: dict[Sequence, Job] = {}
        self._changes = Changes()  # of the jobs and the scheduler
        self._step: StepUnderWay | None = None  # None between steps
        self._runs_ahead = runner.backend.runs_ahead and drafter is None
        self._flight: Flight | None = None  # the next step, where it was started already
        self._next_deadline = inf  # no open job has an earlier one

    @property
    def max_len(self) -> int:
        """Tokens a sequence may have, prompt and answer."""
        return self.scheduler.pages.max_len

    @cached_property
    def notary(self) -> Notary:
        """What receipts say of this model alike; BadInput where it has no files. May take a while, once."""
        if self._identity is None:
            raise BadInput("generate", "receipt", "True", "False for a model without files")
        if self.runner.tier < Tier.INVARIANT:
            needed = "invariant or portable: at fast, an answer's bits depend on what else is in the batch"
            raise BadInput("generate", "receipt", f"{self.runner.tier.label} numerics", needed)
        from samebits.engine.notary import Notary, numerics_of, place_of

        return Notary(self._identity(), numerics_of(self.runner), place_of(self.runner), self.max_len)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """A line for each op that does not run on the backend, sampling included."""
        return (*self.runner.fallbacks, *self._sampler.fallbacks)

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    def watch(self, observer: Observer | None) -> None:
        """Tells this observer from now on, and no other."""
        self._telling = Telling(observer)

    def watch_pages(self, listener: PageListener) -> None:
        """Tells this listener which prefixes the first group's pages hold from now on, and no other."""
        self.scheduler.pages.pool.listener = listener

    def generate(
        self,
        prompt: Iterable[int],
        params: SamplingParams,
        options: RequestOptions = NO_OPTIONS,
        **stated: Any,
    ) -> Generation:
        """Queue a prompt; its pieces come with the steps. Raise BadInput if it can never run.

        stated  fields of RequestOptions by name, as callers of earlier versions pass them
        """
        options = replace(options, **stated) if stated else options
        if self.tokenizer is None:
            raise BadInput("engine", "tokenizer", "none", "the one that turns answers into text")
        draws, wants_all = params.max_tokens > 0, params.prompt_logprobs is not None
        tokens = checked_ids("generate", "prompt", prompt, self.max_len - draws, self.runner.vocab_size)
        check_ids(params, self.runner.vocab_size)
        drafted, most = options.drafted, min(params.max_tokens, self.max_len - len(tokens))
        samples = checked_samples(options.sample_indices, params.n, drafted is not None)
        expected = expected_ids(drafted, most, self.runner.vocab_size)
        params = params.resolved(self.defaults).with_seed()  # a receipt states what was drawn with
        issue = self._issuer(tokens, params, options)
        if options.goes_on and not expected:
            expected = None  # nothing was drawn elsewhere: a plain request
        options = replace(options, drafted=expected, sample_indices=samples)
        job = Generation(self.tokenizer, tokens, params, self.max_len, options, issue)
        if (not draws and not wants_all) or expected == []:
            job.arrived_at = self.clock()
            job.end_empty("length" if not draws else "unfinished")
            self._ended(job)
            return job
        num_samples = len(job.answers) if draws else 1
        guesses = None if expected is None else np.array(expected, np.int32)
        return self._add(
            job, PromptRequest(tokens, num_samples, options.priority, options.salt, wants_all, draws, guesses)
        )

    def score(
        self, tokens: Iterable[int], *, top_k: int = 0, keep_logits: bool = False, deadline: float | None = None
    ) -> Scoring:
        """Queue a text and compute its log-probabilities at every position."""
        ids = checked_ids("score", "tokens", tokens, self.max_len, self.runner.vocab_size)
        return self._add(Scoring(ids, top_k, keep_logits, deadline), PromptRequest(ids, wants_all=True, draws=False))

    def embed(self, tokens: Iterable[int], pooling: str = "mean", *, deadline: float | None = None) -> Embedding:
        """Queue a text and compute the mean of its hidden states, or the last one."""
        if pooling not in POOLINGS:
            raise BadInput("embed", "pooling", pooling, " or ".join(POOLINGS))
        ids = checked_ids("embed", "tokens", tokens, self.max_len, self.runner.vocab_size)
        return self._add(Embedding(ids, pooling, deadline), PromptRequest(ids, wants_all=True, draws=False))

    def cancel(self, job: Job, reason: str = CANCELLED) -> None:
        """Ends a job now, with what it has; nothing for one that has ended."""
        if not self._changes.are_whole:
            self._recover()
        self._end(job, reason)

    def cancel_all(self) -> None:
        """Ends every job."""
        for job in self._open_jobs():
            self.cancel(job)

    def step(self) -> bool:
        """Computes one step; False where there was nothing to do.

        What a kernel raises ends the requests of that step, with its text, and no other. What a request's own code
        raises, its mask or its text's for instance, ends that request. An interrupt (Ctrl-C) ends the requests of the
        step too and is raised again. All other requests go on with the bits they would have had.
        """
        if self._step is not None or not self._changes.are_whole:
            self._recover()
        step = self._step = StepUnderWay()
        try:
            has_worked = self._work(step)
            self._step = None
        except BaseException as error:
            step.reason, step.is_interrupt = described(error), is_interrupt(error)
            if step.is_interrupt:
                step.reason = f"{INTERRUPTED} ({type(error).__name__})"
            elif step.plan is None or not self._changes.are_whole:  # no kernel's fault: ours, perhaps
                log.error("a step could not be planned or taken", exc_info=error)
            self._recover()
            if step.is_interrupt:
                raise
            return True
        return has_worked

    def _work(self, step: StepUnderWay) -> bool:
        """Compute a step, noting in `step` how far it has come. Return False if there was nothing to do."""
        start = self.clock()
        self._end_overdue(start)
        flight = self._flight or self._take_off(step)
        if flight is None:
            return False
        step.plan, self._flight = flight.plan, None
        result = flight.result()
        step.delivery = delivery = Delivery(self._jobs, result, self.clock)
        taken = self._draw(flight, result, delivery)
        with self._changes:
            self.scheduler.commit(flight.plan, *taken)
        drafted = self.speculation.learn(flight.plan, taken.counts) if self.speculation else (0, 0)
        delivery.settle(self._finish, self._fail)
        self._telling.stepped(StepStats.of(flight.plan, self.scheduler, self.clock() - start, drafted))
        return True

    def _recover(self) -> None:
        """Make the state whole after an error or an interrupt at any place, this method included.

        The jobs of the step under way end; the next step, if it was started, is dropped, and the device is waited for.
        If the scheduler was not changing then, it forgets those jobs and nothing else. Otherwise it starts anew: the
        other jobs wait with the tokens they have, and all known prefixes are forgotten. Raise RequestFailed if that
        fails too: then all jobs end, and every later call tries again before anything else.
        """
        try:
            self._mend()
        except BaseException as error:
            if is_interrupt(error):
                raise
            reason = f"the engine stopped: {described(error)}"
            for job in self._open_jobs():
                job.fail(reason)
            raise RequestFailed(reason) from error

    def _mend(self) -> None:
        step, was_whole = self._step, self._changes.are_whole
        self._changes.begin()
        failed = {} if step is None else step.fail(self._jobs, self.scheduler.slots.running)
        self._flight = None
        with suppress(SamebitsError):  # what the device noted of this step must not be told by the next
            self.runner.backend.sync()
        gone = {sequence: job for sequence, job in self._jobs.items() if job.is_done}
        if was_whole and step is not None and step.plan is not None:
            self.scheduler.abandon(step.plan)
            for sequence in gone:
                self.scheduler.finish(sequence)
        else:
            left = {s: job for s, job in self._jobs.items() if not job.is_done}
            self.scheduler.start_anew({s: job.known_tokens(s) for s, job in left.items()}, gone)
        for sequence in gone:
            self._jobs.pop(sequence, None)
            if self.speculation:
                self.speculation.forget(sequence)
        self._changes.mended()
        for job in {**failed, **dict.fromkeys(gone.values())}:
            if job.ended_at is None:
                self._ended(job)
        self._step = None

    def complete(self, *jobs: Job) -> None:
        """Steps until these have ended; what interrupts that ends them too."""
        try:
            while not all(job.is_done for job in jobs) and self.step():
                pass
        finally:
            for job in jobs:
                self.cancel(job)

    def _issuer(
        self, prompt: np.ndarray, params: SamplingParams, options: RequestOptions
    ) -> Callable[[int, Said], Receipt] | None:
        """Return what makes the receipts of a request's answers, or None if none is asked for."""
        if not params.receipt:
            return None
        if (options.make_mask is None) != (options.grammar is None):
            raise BadInput("generate", "receipt", "masks of a grammar that is not stated", "masks and their grammar")
        return partial(self.notary.receipt, prompt, params, options.grammar)

    def _add(self, job: AnyJob, request: PromptRequest) -> AnyJob:
        if not self._changes.are_whole:
            self._recover()
        self.scheduler.check(request)
        job.arrived_at = self.clock()
        if job.deadline is not None:
            self._next_deadline = min(self._next_deadline, job.deadline)
        try:
            with self._changes:
                job.sequences = self.scheduler.add(request)
                self._jobs.update(dict.fromkeys(job.sequences, job))
            return job
        except BaseException:  # the caller never gets it, so nobody else could end it
            job.sequences = [s for s in job.sequences if s in self._jobs]  # recovering forgets all others
            self.cancel(job)
            raise

    def _open_jobs(self) -> list[Job]:
        return list(dict.fromkeys(self._jobs.values()))

    def _end_overdue(self, now: float) -> None:
        """Looks through the open jobs only when some deadline may have passed; ended ones are kept nowhere."""
        if now < self._next_deadline:
            return
        for job in self._open_jobs():
            if job.deadline is not None and job.deadline <= now:
                self._end(job, DEADLINE)
        left = (job.deadline for job in self._open_jobs() if job.deadline is not None)
        self._next_deadline = min(left, default=inf)

    def _run(self, plan: StepPlan) -> StepResult:
        self.runner.copy_pages(plan.copies)
        self.runner.copy_slots(plan.slot_copies)
        return self.runner.run(plan.batch)

    def _propose(self, sequences: list[Sequence], room: int) -> list[np.ndarray]:
        """Guesses for sequences that decode; for the scheduler."""
        if self.speculation is None:
            return [NOTHING] * len(sequences)
        slots = self.scheduler.slots
        return self.speculation.propose(
            sequences,
            room,
            lambda sequence: self._jobs[sequence].answer(sequence.sample_index),
            lambda sequence: slots.tokens[sequence.slot, : slots.known[sequence.slot]],
        )

    def _take_off(self, step: StepUnderWay) -> Flight | None:
        with self._changes:
            plan = step.plan = self.scheduler.plan(self._propose if self.speculation else None)
        if plan is None:
            return None
        return start_flight(plan, [self._jobs[s].answer(s.sample_index) for s in plan.sampled], self._run)

    def _draw(self, flight: Flight, result: StepResult, delivery: Delivery) -> Taken:
        """While the device computes this step the next one is planned, and started before tokens are handed out."""
        plan, coming = flight.plan, None
        if self._runs_ahead:
            with self._changes:
                coming = NextFlight.behind(flight, self.scheduler, self._run)
        if not plan.sampled:
            result.wait()
        when_drawn = None if coming is None else coming.start
        try:
            return draw_and_deliver(plan, result, self._sampler, flight.answers, delivery, when_drawn)
        finally:
            self._flight = None if coming is None else coming.flight

    def _finish(self, job: Job, sequence: Sequence) -> None:
        """One sample has all it wants."""
        self._let_go(sequence)
        if job.is_done:
            self._ended(job)

    def _end(self, job: Job, reason: str) -> None:
        """Cut a job and let go of its sequences. An interrupt of the job's own code fails the job and is raised."""
        interrupt: BaseException | None = None
        with self._changes:
            try:
                job.cut(reason)
            except BaseException as error:
                job.fail(described(error))
                interrupt = error if is_interrupt(error) else None
            self._release(job)
        if job.ended_at is None:
            self._ended(job)
        if interrupt is not None:
            raise interrupt

    def _release(self, job: Job) -> None:
        for sequence in job.sequences:
            self._let_go(sequence)

    def _let_go(self, sequence: Sequence) -> None:
        with self._changes:
            self.scheduler.finish(sequence)
            self._jobs.pop(sequence, None)
        if self._flight is not None and not self._jobs:  # nobody is left whom its tokens could be for
            self._flight = None
            with suppress(SamebitsError):
                self.runner.backend.sync()
        if self.speculation:
            self.speculation.forget(sequence)

    def _fail(self, job: Job, reason: str) -> None:
        self._release(job)
        if job.fail(reason):
            self._ended(job)

    def _ended(self, job: Job) -> None:
        job.ended_at = self.clock()
        self._telling.ended(job)
