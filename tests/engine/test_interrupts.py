"""An interrupt or a fault at any line of a step: no wrong bit, no lost page, no request that is left open."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from guessing import Knowing
from interrupts import Place, Trace
from scenes import PARAMS, Lab, outcome, prompt_of, start

from samebits.core.errors import SamebitsError
from samebits.engine.engine import Engine
from samebits.engine.job import Job, RequestFailed
from samebits.scheduler import Policy

ERRORS: tuple[Callable[[], BaseException], ...] = (
    KeyboardInterrupt,
    lambda: MemoryError("no room"),
    lambda: SamebitsError("a fault"),
)
NAMES = ("greedy", "two samples", "shaped", "mean")
NUM_STEPS = 6  # in which faults come; prompts start, fork, decode and end in them
NUM_PLACES = 60  # lines per kind of engine that are tried; all of them in `python tests/engine/test_interrupts.py`


@dataclass(frozen=True)
class Kind:
    """An engine and what makes its steps special."""

    name: str
    is_hybrid: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    drafts: bool = False
    runs_ahead: bool = False

    def engine(self, lab: Lab) -> Engine:
        options = {"policy": Policy(24), **dict(self.options)}
        drafter = Knowing(lab, 0.7, most=4) if self.drafts else None
        return lab.engine(drafter=drafter, **options)


KINDS = (
    Kind("plain"),
    Kind("tight", options=(("num_pages", 14),)),
    Kind("drafts", drafts=True),
    Kind("ahead", runs_ahead=True, options=(("policy", Policy()),)),
    Kind("slots", is_hybrid=True),
)


class Play:
    """Requests of every kind on one engine; some wait, some run, and in the end all of them are looked at."""

    def __init__(self, kind: Kind, lab: Lab) -> None:
        self.lab, self.engine = lab, kind.engine(lab)
        self.jobs: list[tuple[str, Job]] = []
        names = ["greedy"] if kind.runs_ahead else NAMES  # others are not planned ahead
        for name in names:
            self.start(name)
        self.late = list(names)

    def start(self, name: str) -> None:
        if self.engine._runs_ahead and name == "greedy":  # whose logits would be looked at
            params = replace(PARAMS[name], hash_logits=False)
            self.jobs.append((name, self.engine.generate(prompt_of(name, self.lab.runner.vocab_size), params)))
        else:
            self.jobs.append((name, start(self.engine, name)))

    def steps(self) -> None:
        """Where faults come: steps, newcomers, and one that is cancelled."""
        for number in range(NUM_STEPS):
            self.engine.step()
            if number == 1:
                victim = self.engine.generate([7] * 40, PARAMS["greedy"], priority=-1)
            if number == 3:
                self.engine.cancel(victim)
                self.start("greedy")

    def check(self) -> int:
        """Finish, and look at everything; return how many requests failed."""
        engine = self.engine
        for name in self.late:
            self.start(name)
        while not engine.is_idle:
            engine.step()
            engine.scheduler.check_integrity()
        num_failed = 0
        for name, job in self.jobs:
            assert job.is_done, name
            if job.error is not None:
                num_failed += 1
                with pytest.raises(RequestFailed, match="interrupted|no room|a fault"):
                    outcome(job)
            else:
                assert plain(outcome(job)) == plain(self.lab.alone[name]), name
        assert all(job.error is None for _, job in self.jobs[-len(self.late) :])
        assert engine.scheduler.pages.num_used == 0
        assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (0, 0)
        return num_failed


def plain(found: Any) -> Any:
    """Without hashes of logits, which not all requests ask for."""
    return [replace(c, logits_sha256=None, logprobs=()) for c in found] if isinstance(found, list) else found


def places_of(kind: Kind, lab: Lab) -> list[tuple[Place, int]]:
    """Every line that runs in the steps, with how often it runs."""
    trace, play = Trace(), Play(kind, lab)
    trace.run(play.steps)
    play.check()
    return sorted(trace.places.items())


def try_place(kind: Kind, lab: Lab, place: Place, occurrence: int, error: BaseException) -> int:
    """Raise there; return how many requests failed for it. An interrupt must reach the caller."""
    play, trace = Play(kind, lab), Trace(place, occurrence, error)
    try:
        trace.run(play.steps)
        was_raised = False
    except BaseException as found:
        assert found is error or found.__cause__ is error, found
        was_raised = True
    assert trace.has_raised
    assert was_raised or not isinstance(error, KeyboardInterrupt), f"an interrupt at {place} was swallowed"
    return play.check()


def prepared(kind: Kind, lab: Lab, hybrid: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    chosen = hybrid if kind.is_hybrid else lab
    monkeypatch.setattr(chosen.runner.backend, "runs_ahead", kind.runs_ahead)
    return chosen


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_fault_at_any_line(kind: Kind, lab: Lab, hybrid: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, draw = prepared(kind, lab, hybrid, monkeypatch), random.Random(kind.name)
    places = places_of(kind, chosen)
    num_failed = 0
    for number, (place, count) in enumerate(draw.sample(places, NUM_PLACES)):
        num_failed += try_place(kind, chosen, place, draw.randint(1, count), ERRORS[number % 3]())
    assert num_failed > NUM_PLACES // 4  # else the faults were nowhere
