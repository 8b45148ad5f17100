"""How long a run takes: the one timer of `samebits bench ops`, on a host and on a device, and of `verify --perf`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from samebits.backends.interface import Backend
from samebits.backends.one_op import Finished

MIN_SAMPLES, MAX_SAMPLES, MAX_SECONDS = 3, 200, 0.3


@dataclass(frozen=True)
class Times:
    """Seconds of one run, each sample measured by itself."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.samples) - min(self.samples)) / self.median


def time_runs(backend: Backend, runs: Sequence[Callable[[], object]]) -> Times:
    """The times of runs that are made in turn, launched and not waited for; what they do first is not counted.

    A backend with a stopwatch of its own times them without the host between them. Else each is timed from outside:
    run, sync, the host's clock. BadInput where the device refuses a value: what was timed computed nothing then.
    """
    with Finished(backend):  # around them all: in each it would be a microsecond of the kernel's time
        stopwatch = backend.stopwatch()
        return Times(tuple(stopwatch.samples(runs) if stopwatch else _from_outside(backend, runs)))


def _from_outside(backend: Backend, runs: Sequence[Callable[[], object]]) -> list[float]:
    runs[0]()
    backend.sync()
    samples: list[float] = []
    turns, stop = cycle(runs), time.perf_counter() + MAX_SECONDS
    while len(samples) < MIN_SAMPLES or (time.perf_counter() < stop and len(samples) < MAX_SAMPLES):
        run, started = next(turns), time.perf_counter()
        run()
        backend.sync()
        samples.append(time.perf_counter() - started)
    return samples
