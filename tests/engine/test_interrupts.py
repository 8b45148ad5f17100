"""An interrupt or a fault at any line of a step: no wrong bit, no lost page, no request that is left open."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from guessing import Knowing
from interrupts import Place, Trace
from scenes import PARAMS, Lab, outcome, prompt_of, start

from samebits import LLM, SamplingParams
from samebits.core.errors import SamebitsError
from samebits.engine.answer import Answer
from samebits.engine.delivery import Delivery
from samebits.engine.engine import Engine
from samebits.engine.job import Job, RequestFailed
from samebits.engine.request_options import RequestOptions
from samebits.scheduler import Policy

ERRORS: tuple[Callable[[], BaseException], ...] = (
    KeyboardInterrupt,
    lambda: MemoryError("no room"),
    lambda: SamebitsError("a fault"),
)
NAMES = ("greedy", "two samples", "shaped", "mean")
NUM_STEPS = 6  # in which faults come; prompts start, fork, decode and end in them
NUM_PLACES = 10  # lines per kind of engine that are tried; tests/engine/interrupt_sweep.py tries all of them


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
                victim = self.engine.generate([7] * 40, PARAMS["greedy"], RequestOptions(priority=-1))
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
                with pytest.raises(RequestFailed, match=r"interrupted|no room|a fault"):
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
        if found is not error:
            raise
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
    num_failed = 0
    for number, (place, count) in enumerate(draw.sample(places_of(kind, chosen), NUM_PLACES)):
        num_failed += try_place(kind, chosen, place, draw.randint(1, count), ERRORS[number % 3]())
    assert num_failed >= NUM_PLACES // 4  # else the faults were nowhere


def test_a_request_whose_start_is_interrupted_does_not_run(lab: Lab) -> None:
    """Nobody holds it, so nobody could cancel it."""

    def played(trace: Trace) -> tuple[Engine, Job]:
        engine = lab.engine()
        other = start(engine, "mean")
        with suppress(KeyboardInterrupt):
            trace.run(partial(start, engine, "two samples"))
        return engine, other

    dry, num_raised = Trace(), 0
    played(dry)
    for place, count in sorted(dry.places.items()):
        if not place[0].endswith(("engine/engine.py", "under_way.py", "scheduler.py", "waiting.py")):
            continue
        trace = Trace(place, count, KeyboardInterrupt())
        engine, other = played(trace)
        assert trace.has_raised
        num_raised += 1
        engine.complete(other)
        assert outcome(other) == lab.alone["mean"]
        assert engine.is_idle, place
        engine.scheduler.check_integrity()
        assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (0, 0)
    assert num_raised > 20


STAGES = ("plan", "commit", "finish", "_run", "draw", "stepped", "copy_pages", "plan_ahead")


def interrupt_once(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, is_after: bool) -> None:
    """Raise an interrupt before or after the first call of a method does its work."""
    work, calls = getattr(owner, name), iter([True])

    def interrupted(*arguments: Any, **options: Any) -> Any:
        is_here = next(calls, False)
        if is_here and not is_after:
            raise KeyboardInterrupt
        result = work(*arguments, **options)
        if is_here:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, interrupted)


def owner_of(engine: Engine, stage: str) -> Any:
    owners = (engine.scheduler, engine, engine._sampler, engine._telling, engine.runner)
    return next(owner for owner in owners if hasattr(owner, stage))


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupt_ends_the_requests_of_its_step_and_no_others(
    lab: Lab, stage: str, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two samples run, and a text waits for pages. Interrupts come at every stage of a step."""
    ahead = stage == "plan_ahead"
    monkeypatch.setattr(lab.runner.backend, "runs_ahead", ahead)
    engine = lab.engine(9, policy=Policy(71))
    if ahead:
        params = replace(PARAMS["two samples"], hash_logits=False, logprobs=None)
        first = engine.generate(prompt_of("two samples", lab.runner.vocab_size), params)
    else:
        first = start(engine, "two samples")
    waits = start(engine, "mean")  # there are not enough pages for both
    engine.step()
    interrupt_once(owner_of(engine, stage), stage, monkeypatch, is_after)
    with pytest.raises(KeyboardInterrupt):
        engine.complete(*(job for job in (first,) if not job.is_done))
    monkeypatch.undo()
    engine.scheduler.check_integrity()
    if stage == "finish":  # it has all its tokens by then
        assert outcome(first) == lab.alone["two samples"]
    else:
        assert first.error == "the step that computed this request was interrupted (KeyboardInterrupt)"
    assert not waits.is_done
    engine.complete(waits)
    assert outcome(waits) == lab.alone["mean"]
    again = start(engine, "two samples")
    engine.complete(again)
    assert outcome(again) == lab.alone["two samples"]
    assert engine.scheduler.pages.num_used == 0


@pytest.mark.parametrize("first_fault", ["commit", "_run"])
@pytest.mark.parametrize("error", ERRORS[:2], ids=["interrupt", "fault"])
def test_a_recovery_that_is_interrupted_is_made_good_by_the_next_call(
    lab: Lab, first_fault: str, error: Callable[[], BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """State is never half made: what one recovery left, the next one finishes."""

    def play(trace: Trace) -> Play:
        game = Play(KINDS[1], lab)
        mend, engine = game.engine._mend, game.engine
        engine.step()
        with monkeypatch.context() as patch:
            interrupt_once(owner_of(engine, first_fault), first_fault, patch, is_after=True)
            patch.setattr(engine, "_mend", lambda: trace.run(mend) if not trace.places else mend())
            with pytest.raises((KeyboardInterrupt, RequestFailed)):
                engine.step()
        game.check()
        return game

    dry = Trace()
    play(dry)
    draw = random.Random(first_fault)
    for place, count in draw.sample(sorted(dry.places.items()), 6):
        trace = Trace(place, draw.randint(1, count), error())
        play(trace)
        assert trace.has_raised


@pytest.mark.parametrize("where", ["hand-out", "commit", "settle"])
def test_two_streams_one_interrupted(random_tiny: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one gets right tokens alone, and then a reason; later requests have their bits."""
    llm = LLM(random_tiny, context_len=128)
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=3, ignore_eos=True)
    prompts = [prompt_of("greedy", 265), prompt_of("shaped", 265)]
    alone = [llm.generate([prompt], params)[0] for prompt in prompts]
    other, first = (llm.stream(prompt, params) for prompt in prompts)
    tokens = [next(stream).token_id for stream in (other, first, other, first)][::2]
    owners = {"hand-out": (Answer, "push"), "commit": (llm.engine.scheduler, "commit"), "settle": (Delivery, "settle")}
    with monkeypatch.context() as patch:
        interrupt_once(*owners[where], patch, is_after=where == "hand-out")  # the other one has got its token by then
        with pytest.raises(KeyboardInterrupt):
            for _ in first:
                pass
    tokens_later: list[int | None] = []
    with pytest.raises(RequestFailed, match="interrupted"):
        tokens_later.extend(piece.token_id for piece in other)
    given = tuple(token for token in tokens + tokens_later if token is not None)
    assert len(given) >= 3
    assert given == alone[0].token_ids[: len(given)]
    assert [llm.generate([prompt], params)[0] for prompt in prompts] == alone
    llm.engine.scheduler.check_integrity()
