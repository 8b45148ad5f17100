"""Those who watch an engine's work, and what they are told."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from samebits.engine.faults import reason_of
from samebits.engine.job import Job
from samebits.scheduler import Scheduler, StepPlan

log = logging.getLogger("samebits.engine")


@dataclass(frozen=True)
class StepStats:
    """One step."""

    seconds: float
    num_decodes: int
    num_prefill_tokens: int
    num_running: int
    num_waiting: int
    num_used_pages: int
    num_free_pages: int
    num_drafted: int = 0  # guessed tokens that were verified
    num_taken: int = 0  # and those of them that were right

    @classmethod
    def of(cls, plan: StepPlan, scheduler: Scheduler, seconds: float, drafted: tuple[int, int]) -> StepStats:
        """Of a step that was taken; drafted: guesses that were verified, and that were right."""
        pages = scheduler.pages
        return cls(
            seconds,
            plan.num_decodes,
            plan.num_prefill_tokens,
            scheduler.num_running,
            scheduler.num_waiting,
            pages.num_used,
            pages.num_free,
            *drafted,
        )


class Observer(Protocol):
    """What is told of an engine's work; called between steps, so it should be quick."""

    def stepped(self, stats: StepStats) -> None: ...

    def ended(self, job: Job) -> None: ...


class Telling:
    """Tells an observer, if there is one; what that raises never reaches the step."""

    def __init__(self, observer: Observer | None) -> None:
        self.observer = observer
        self._last_fault = ""

    def stepped(self, stats: StepStats) -> None:
        """A fault is logged; the same one over and over is logged once."""
        if self.observer is None:
            return
        try:
            self.observer.stepped(stats)
        except BaseException as error:
            fault = reason_of(error)
            if fault != self._last_fault:
                log.error("the observer of an engine's steps failed: %s", fault)
            self._last_fault = fault

    def ended(self, job: Job) -> None:
        """A fault is the job's: it fails with it."""
        if self.observer is None:
            return
        try:
            self.observer.ended(job)
        except BaseException as error:
            job.error = job.error or reason_of(error)
