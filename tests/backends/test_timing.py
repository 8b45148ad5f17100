"""The one timer of ops: runs in turn, each waited for, or the backend's own stopwatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from samebits.backends import timing
from samebits.backends.interface import Buffer, Stopwatch
from samebits.backends.reference import ReferenceBackend
from samebits.backends.timing import Times, time_runs
from samebits.core.shapes import TensorSpec


class Noting(ReferenceBackend):
    """Notes what is run and when it is waited for."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def sync(self) -> None:
        self.notes.append("sync")

    def run(self, name: str) -> Callable[[], object]:
        return lambda: self.notes.append(name)


class OwnClock(Stopwatch):
    cache_bytes = 1

    def random(self, spec: TensorSpec, seed: int) -> Buffer:
        raise NotImplementedError

    def samples(self, runs: Sequence[Callable[[], object]]) -> list[float]:
        for run in runs:
            run()
        return [4.0, 1.0, 2.0]

    def ceilings(self) -> dict[str, float]:
        return {}


class Clocked(Noting):
    def stopwatch(self) -> Stopwatch:
        return OwnClock()


def test_runs_are_made_in_turn_and_waited_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MAX_SAMPLES", 4)
    backend = Noting()
    times = time_runs(backend, [backend.run("a"), backend.run("b")])
    assert backend.notes == ["a", "sync", *(["a", "sync", "b", "sync"] * 2), "sync"]  # the first is not counted
    assert len(times.samples) == 4
    assert min(times.samples) > 0


def test_few_samples_of_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MAX_SECONDS", 0.0)
    assert len(time_runs(Noting(), [lambda: None]).samples) == timing.MIN_SAMPLES


def test_a_backend_with_a_clock_of_its_own_is_timed_by_that() -> None:
    backend = Clocked()
    times = time_runs(backend, [backend.run("a"), backend.run("b")])
    assert backend.notes == ["a", "b", "sync"]
    assert times == Times((4.0, 1.0, 2.0))
    assert (times.median, times.spread) == (2.0, 1.5)
