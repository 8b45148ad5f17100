"""Records of an engine's changes under way, so that it can recover from an interrupt at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from samebits.engine.delivery import Delivery
from samebits.engine.job import Job
from samebits.scheduler import Sequence, StepPlan

INTERRUPTED = "the step that computed this request was interrupted"


class Changes:
    """Entered around every change of an engine's jobs and scheduler: what raises in there leaves `are_whole` false.

    No exception handler has to run for that, so it holds for interrupts between any two instructions.
    """

    def __init__(self) -> None:
        self._depth = 0

    @property
    def are_whole(self) -> bool:
        return self._depth == 0

    def begin(self) -> None:
        """State is not whole until `mended`."""
        self._depth = 1

    def mended(self) -> None:
        """State was made anew."""
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._depth -= 1


@dataclass(eq=False)
class StepUnderWay:
    """A step as far as it has come.

    reason   why its requests fail if it never ends
    failed   the requests that fail with it and why, once that was decided
    """

    plan: StepPlan | None = None
    delivery: Delivery | None = None
    reason: str = INTERRUPTED
    is_interrupt: bool = True
    failed: dict[Job, str] | None = None

    def fail(self, open_jobs: Mapping[Sequence, Job], running: list[Sequence]) -> dict[Job, str]:
        """Fail the jobs that the step may have touched. Return them with their reasons, the same ones at every call."""
        if self.failed is None:
            self.failed = self._touched(open_jobs, running)
        for job, reason in self.failed.items():
            job.fail(reason)
        return self.failed

    def _touched(self, open_jobs: Mapping[Sequence, Job], running: list[Sequence]) -> dict[Job, str]:
        """Before there is a plan, those are the running ones; where none runs, an error may be about any that waits."""
        sequences = running if self.plan is None else self.plan.sequences
        found = {open_jobs[s]: self.reason for s in sequences if s in open_jobs}
        if self.plan is None and not found and not self.is_interrupt:
            found = dict.fromkeys(open_jobs.values(), self.reason)
        return found if self.delivery is None else found | self.delivery.ends(self.reason)
