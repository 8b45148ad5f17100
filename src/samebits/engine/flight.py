"""Steps on the device while the host goes on: the next one is planned while one is computed, and started as soon as its
tokens are drawn; what was drawn is handed out behind that, while the device works again.

A step fails for itself: what one drew is known to be good before the next is started.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass

import numpy as np

from samebits.engine.answer import Answer
from samebits.engine.faults import is_interrupt
from samebits.engine.runner import StepResult
from samebits.scheduler import Scheduler, StepPlan


@dataclass(frozen=True, eq=False)
class Flight:
    """A step that was started: whose answers draw from it, and what it computes, or why it could not be started."""

    plan: StepPlan
    answers: Sequence_[Answer]  # of plan.sampled
    outcome: StepResult | BaseException

    def result(self) -> StepResult:
        """Raises what starting it raised."""
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


Start = Callable[[StepPlan], StepResult]


def start(plan: StepPlan, answers: Sequence_[Answer], run: Start) -> Flight:
    """Start a step. What that raises is raised where the step lands, except for an interrupt, which is raised here."""
    try:
        return Flight(plan, answers, run(plan))
    except BaseException as error:
        if is_interrupt(error):
            raise
        return Flight(plan, answers, error)


class NextFlight:
    """The step behind one that is under way: planned now, started when the draws are known. `flight` is it then."""

    def __init__(self, before: Flight, plan: StepPlan, run: Start) -> None:
        self._plan, self._run = plan, run
        self.flight: Flight | None = None
        answers = dict(zip(before.plan.sampled, before.answers, strict=True))
        self._answers = [answers[s] for s in plan.sampled]

    @classmethod
    def behind(cls, before: Flight, scheduler: Scheduler, run: Start) -> NextFlight | None:
        """None where the next plan has to wait for what this step brings, or somebody reads its logits afterwards."""
        if any(answer.reads_logits for answer in before.answers):
            return None
        ending = {s for s, a in zip(before.plan.sampled, before.answers, strict=True) if a.num_left <= 1}
        plan = scheduler.plan_ahead(before.plan, ending)
        return None if plan is None else cls(before, plan, run)

    def start(self, tokens: np.ndarray) -> None:
        """`tokens`: one for each draw of the step before; those that could not be drawn count as any other."""
        self._plan.batch.token_ids[:] = tokens[self._plan.sources]
        self.flight = start(self._plan, self._answers, self._run)
