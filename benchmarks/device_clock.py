"""Events on a GPU's own clock around the steps of a runner."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

from samebits.backends.interface import Buffer
from samebits.core.format import HostTensor
from samebits.core.step import StepBatch
from samebits.engine.runner import Runner, StepResult


class DeviceClock:
    """Inside it, an event is recorded ahead of every step of the runner, and one behind it, its draws included."""

    def __init__(self, runner: Runner) -> None:
        self._runner, backend = runner, runner.backend
        self._run, self._result, self._sync = runner.run, backend.result, backend.sync
        self._steps: list[list[Any]] = []  # start, and end once there is one
        self._last: StepBatch | None = None

    def __enter__(self) -> DeviceClock:
        self._put(self._timed_run, self._timed_result, self._timed_sync)
        return self

    def __exit__(self, *_: object) -> None:
        self._put(self._run, self._result, self._sync)

    def _put(self, run: Any, result: Any, sync: Any) -> None:
        backend: Any = self._runner.backend
        self._runner.run, backend.result, backend.sync = run, result, sync  # type: ignore[method-assign]

    def _timed_run(self, batch: StepBatch) -> StepResult:
        self._steps.append([_event()])
        self._last = batch
        return self._run(batch)

    def _timed_result(self, buffer: Buffer) -> HostTensor:
        self._end()
        return self._result(buffer)

    def _timed_sync(self) -> None:
        self._end()
        self._sync()

    def _end(self) -> None:
        """All of the step is queued: the first wait behind it comes."""
        if self._steps and len(self._steps[-1]) == 1:
            self._steps[-1].append(_event())

    def between(self) -> list[float]:
        """Seconds from the end of each step to the start of the next."""
        return [max(0.0, a[1].elapsed_time(b[0])) * 1e-3 for a, b in pairwise(self._steps)]

    def launch_seconds(self, count: int = 16) -> float:
        """How much longer the last step takes behind a wait than behind another step: its graph is launched then."""
        if self._last is None:
            return 0.0
        alone = []
        for _ in range(count):
            self._sync()
            alone.append(self._elapsed(self._last, 1))
        return max(0.0, statistics.median(alone) - self._elapsed(self._last, count) / count)

    def _elapsed(self, batch: StepBatch, count: int) -> float:
        """Seconds of a step, so many times one behind the other."""
        start = _event()
        for _ in range(count):
            self._run(batch)
        end = _event()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


def _event() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
