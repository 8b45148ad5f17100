"""Code that comes with a request may raise at any moment: that request fails, with the reason, and no other notices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuses import LONG, Fuse, FusedMask, Panic, victim_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import WATCHED, Lab, outcome, start

from samebits.core.errors import BadInput
from samebits.engine.delivery import Delivery
from samebits.engine.engine import Engine
from samebits.engine.job import Generation, Job, RequestFailed
from samebits.engine.observer import StepStats
from samebits.engine.request_options import RequestOptions
from samebits.engine.runner import StepResult
from samebits.scheduler import Policy, StepPlan


@given(
    where=st.sampled_from(["allowed", "accept", "text", "finish"]),
    calls_before=st.integers(0, 20),
    kind=st.sampled_from([ValueError, MemoryError, Panic, StopIteration]),
    steps_before=st.integers(0, 12),
    num_pages=st.sampled_from([None, 12]),
    budget=st.sampled_from([7, "dynamic"]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_delivery_that_raises_fails_its_request_alone(
    lab: Lab,
    where: str,
    calls_before: int,
    kind: type[BaseException],
    steps_before: int,
    num_pages: int | None,
    budget: Any,
) -> None:
    engine = lab.engine(num_pages, policy=Policy(budget))
    others = {name: start(engine, name) for name in WATCHED}
    for _ in range(steps_before):
        engine.step()
    is_end = where == "finish"  # which comes once for each of two samples
    params = replace(LONG, max_tokens=1 + calls_before) if is_end else LONG
    victim = victim_of(lab, engine, where, Fuse(calls_before % 2 if is_end else calls_before, kind), params)
    while not engine.is_idle:
        engine.step()
        engine.scheduler.check_integrity()
    assert {name: outcome(job) for name, job in others.items()} == lab.alone
    assert engine.scheduler.pages.num_used == 0
    with pytest.raises(RequestFailed, match=f"^{kind.__name__}: a fuse blew$"):
        victim.completions()
    assert [answer.finish_reason for answer in victim.answers].count("error") >= 1
    assert all(answer.pieces[-1].finish_reason for answer in victim.answers)


@pytest.mark.parametrize("reason", ["cancelled", "deadline"])
def test_a_text_that_breaks_at_its_end_can_still_be_cut(lab: Lab, reason: str) -> None:
    engine = lab.engine()
    job = victim_of(lab, engine, "finish", Fuse(1, Panic), LONG)
    engine.step()
    engine.cancel(job, reason)
    assert (job.is_done, job.error, engine.is_idle) == (True, "Panic: a fuse blew", True)
    assert engine.scheduler.pages.num_used == 0


def test_a_mask_of_another_vocabulary_fails_its_request_alone(lab: Lab) -> None:
    class Short(FusedMask):
        def allowed(self) -> np.ndarray:
            return np.ones(3, bool)

    engine = lab.engine()
    wrong, shaped = ask(engine, lambda: Short(3, None, None)), start(engine, "shaped")
    engine.complete(wrong, shaped)
    assert outcome(shaped) == lab.alone["shaped"]
    with pytest.raises(RequestFailed, match="IndexError"):
        wrong.completions()


def ask(engine: Engine, make_mask: Callable[[], Any]) -> Generation:
    return engine.generate([5, 6], LONG, RequestOptions(make_mask=make_mask))


def test_a_score_of_logits_that_are_no_numbers_fails_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lab.engine()
    spoiled, others = engine.score([5] * 20, top_k=2), {name: start(engine, name) for name in WATCHED}
    run = engine._run

    def spoil(plan: StepPlan) -> StepResult:
        result = run(plan)
        for scored in plan.scored:
            if scored.sequence in spoiled.sequences:
                result.logits[scored.first_row + 3, 4] = np.nan
        return result

    monkeypatch.setattr(engine, "_run", spoil)
    engine.complete(spoiled, *others.values())
    with pytest.raises(RequestFailed, match="NaN"):
        spoiled.score()
    assert {name: outcome(job) for name, job in others.items()} == lab.alone


class FusedObserver:
    """Breaks when it is told of the end of one job, and of any step."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.victim: Job | None = None

    def stepped(self, stats: StepStats) -> None:
        raise self.kind("cannot count")

    def ended(self, job: Job) -> None:
        if job is self.victim:
            raise self.kind("cannot write it down")


@pytest.mark.parametrize("kind", [ValueError, Panic])
def test_an_observer_that_raises(lab: Lab, kind: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    observer = FusedObserver(kind)
    engine = lab.engine(observer=observer)
    others = {name: start(engine, name) for name in WATCHED}
    observer.victim = victim = engine.generate([5], LONG)
    with caplog.at_level(logging.ERROR):
        engine.complete(victim, *others.values())
    assert {name: outcome(job) for name, job in others.items()} == lab.alone
    with pytest.raises(RequestFailed, match="cannot write it down"):
        victim.completions()
    assert [record.message.count("cannot count") for record in caplog.records] == [1]  # once, not at every step


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": float("nan")}, "deadline is nan, but must be a time in seconds"),
        ({"priority": float("nan")}, "priority is nan, but must be a whole number"),
    ],
)
def test_options_that_would_spoil_the_order_are_refused(lab: Lab, options: dict[str, Any], message: str) -> None:
    engine = lab.engine()
    with pytest.raises(BadInput, match=message):
        engine.generate([5], LONG, RequestOptions(**options))
    assert engine.is_idle


def test_what_a_device_noted_of_a_failed_step_is_not_told_by_the_next(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, noted = lab.engine(), [False]

    def sync() -> None:
        if noted[0]:
            noted[0] = False
            raise BadInput("gemm", "x", "NaN", "finite values")

    def draw(plan: StepPlan, result: StepResult, delivery: Delivery) -> Any:
        noted[0] = True  # a kernel of the step stored a fault, and then something else went wrong
        raise MemoryError("no room")

    monkeypatch.setattr(engine.runner.backend, "sync", sync)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_draw", draw)
        first = start(engine, next(iter(WATCHED)))
        engine.step()
    assert first.error == "MemoryError: no room"
    assert noted == [False]
