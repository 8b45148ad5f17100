"""Steps that are started ahead of what the one before brings: the same answers, whatever ends meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scenes import WATCHED, Lab, Scene, outcome, start

from samebits.engine.engine import Engine
from samebits.engine.job import Generation, RequestFailed
from samebits.engine.request_options import RequestOptions
from samebits.engine.runner import StepResult
from samebits.engine.sampling import SamplingParams
from samebits.scheduler import Policy, StepPlan

NUM_REQUESTS = 24
Ask = tuple[list[int], SamplingParams]


class Log:
    """What an engine runs: plans, which of them were made ahead, and rows of sequences that ended before."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_steps = self.num_ahead = self.num_in_vain = 0
        self._run, self._commit = engine._run, engine.scheduler.commit
        monkeypatch.setattr(engine, "_run", self.run)
        monkeypatch.setattr(engine.scheduler, "commit", self.commit)

    def run(self, plan: StepPlan) -> StepResult:
        self.num_steps += 1
        self.num_ahead += plan.sources is not None
        return self._run(plan)

    def commit(self, plan: StepPlan, *taken: Any) -> None:
        self.num_in_vain += sum(s.slot < 0 for s in plan.sequences)
        self._commit(plan, *taken)


def ahead(lab: Lab, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Engine, Log]:
    """An engine on a backend that claims to return before it has finished."""
    monkeypatch.setattr(lab.runner.backend, "runs_ahead", True)
    engine = lab.engine(**options)
    return engine, Log(engine, monkeypatch)


def asked(vocab_size: int) -> list[Ask]:
    """Requests that end in every way: after some tokens, at a token, at a text; some are shaped by what came before."""
    rng = np.random.default_rng(5)
    kinds = (
        SamplingParams(max_tokens=20, temperature=1.0, ignore_eos=True),
        SamplingParams(max_tokens=40, temperature=1.0, stop_token_ids=tuple(range(3, vocab_size, 9))),
        SamplingParams(max_tokens=40, temperature=1.0, stop=("a", "e", "t")),
        SamplingParams(max_tokens=15, temperature=0.8, repetition_penalty=1.2, top_k=30, ignore_eos=True),
        SamplingParams(max_tokens=30, temperature=1.0, min_tokens=5, stop_token_ids=tuple(range(3, vocab_size, 5))),
    )
    prompts = [rng.integers(3, vocab_size, int(rng.integers(1, 50))).tolist() for _ in range(NUM_REQUESTS)]
    params = [kinds[i % len(kinds)] for i in range(NUM_REQUESTS)]
    lengths = [int(rng.integers(wish.min_tokens + 1, wish.max_tokens + 1)) for wish in params]
    wishes = [replace(wish, seed=i, max_tokens=lengths[i]) for i, wish in enumerate(params)]
    return list(zip(prompts, wishes, strict=True))


@pytest.fixture(scope="module")
def wishes(lab: Lab) -> list[Ask]:
    return asked(lab.runner.vocab_size)


@pytest.fixture(scope="module")
def answers(lab: Lab, wishes: list[Ask]) -> list[Any]:
    """Of each request alone, on an engine that does one thing after another."""
    found = []
    for prompt, params in wishes:
        engine = lab.engine()
        job = engine.generate(prompt, params)
        engine.complete(job)
        found.append(job.completions())
    return found


def played(engine: Engine, wishes: list[Ask], during: Callable[[int], None] = lambda step: None) -> list[Generation]:
    """All of them, some from the start and a newcomer every third step."""
    jobs = [engine.generate(*wish) for wish in wishes[: NUM_REQUESTS // 2]]
    step = 0
    while not engine.is_idle or len(jobs) < len(wishes):
        if step % 3 == 2 and len(jobs) < len(wishes):
            jobs.append(engine.generate(*wishes[len(jobs)]))
        during(step)
        engine.step()
        engine.scheduler.check_integrity()
        step += 1
    return jobs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"policy": Policy(prefill_budget=7)},
        {"num_pages": 14},
        {"shares_prefixes": False},
    ],
    ids=["roomy", "chunks", "tight", "unshared"],
)
def test_answers_are_those_of_each_request_alone(
    lab: Lab, wishes: list[Ask], answers: list[Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, log = ahead(lab, monkeypatch, **options)
    assert [job.completions() for job in played(engine, wishes)] == answers
    assert log.num_ahead > 5
    assert log.num_in_vain > 0 or options
    assert engine.scheduler.pages.num_used == 0


def test_a_backend_that_waits_is_never_ahead(
    lab: Lab, wishes: list[Ask], answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = lab.engine()
    log = Log(engine, monkeypatch)
    assert [job.completions() for job in played(engine, wishes)] == answers
    assert (log.num_ahead, log.num_in_vain) == (0, 0)


def test_requests_that_wait_for_a_slot_do_not_stop_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, log = ahead(lab, monkeypatch)
    params = SamplingParams(max_tokens=24, seed=1, ignore_eos=True)
    jobs = [engine.generate([3 + i], params) for i in range(lab.runner.limits.max_sequences + 5)]
    engine.complete(*jobs)
    assert log.num_ahead >= 40  # of twice 24 steps


def test_what_ends_while_its_step_is_under_way(
    lab: Lab, wishes: list[Ask], answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, log = ahead(lab, monkeypatch)
    now = 0.0
    engine.clock = lambda: now
    params = SamplingParams(max_tokens=50, seed=1, ignore_eos=True)
    others = [
        engine.generate([7, i + 3], params, RequestOptions(deadline=2.0 + i if i % 2 else None)) for i in range(8)
    ]

    def end_some(step: int) -> None:
        nonlocal now
        now = float(step)
        if step < len(others) and step % 2 == 0:
            engine.cancel(others[step])

    assert [job.completions() for job in played(engine, wishes, end_some)] == answers
    assert {job.completions()[0].finish_reason for job in others} == {"cancelled", "deadline"}
    assert log.num_in_vain > 0


def test_answers_that_read_their_logits_get_those_they_were_drawn_from(
    lab: Lab, wishes: list[Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, log = ahead(lab, monkeypatch)
    plain = [engine.generate(*wish) for wish in wishes]
    watched = {name: start(engine, name) for name in WATCHED}
    engine.complete(*watched.values(), *plain)
    assert {name: outcome(job) for name, job in watched.items()} == lab.alone
    assert log.num_ahead > 5  # once those have ended


def test_a_scene_of_every_kind(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = ahead(lab, monkeypatch, num_pages=60)
    assert Scene(num_others=30, seed=3, cancelled_share=0.2).play(engine) == lab.alone


def test_a_step_that_cannot_be_started_ends_its_requests_and_no_others(
    lab: Lab, wishes: list[Ask], answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, log = ahead(lab, monkeypatch)
    run, victims = engine._run, [engine.generate([9, 8 + i], SamplingParams(max_tokens=30, seed=i)) for i in range(3)]

    def fail_once(plan: StepPlan) -> StepResult:
        if log.num_ahead == 4 and plan.sources is not None:
            log.num_ahead += 1
            raise MemoryError("no room for a step")
        return run(plan)

    monkeypatch.setattr(engine, "_run", fail_once)
    engine.complete(*victims)
    for job in victims:
        with pytest.raises(RequestFailed, match="no room for a step"):
            job.completions()
        assert len(job.answers[0].token_ids) == 5  # what was drawn before has come
    assert [job.completions() for job in played(engine, wishes)] == answers


def test_a_draw_that_fails_ends_its_request_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, log = ahead(lab, monkeypatch)
    params = SamplingParams(max_tokens=12, temperature=0, seed=1, ignore_eos=True)
    alone = lab.engine()
    expected = alone.generate([5, 6], params)
    alone.complete(expected)
    good, bad = engine.generate([5, 6], params), engine.generate([7, 8], params)
    run = engine._run

    def spoil(plan: StepPlan) -> StepResult:
        result = run(plan)
        if log.num_steps == 5:
            result.logits[[s in bad.sequences for s in plan.sampled]] = np.nan
        return result

    monkeypatch.setattr(engine, "_run", spoil)
    engine.complete(good, bad)
    assert good.completions() == expected.completions()
    with pytest.raises(RequestFailed, match="NaN"):
        bad.completions()
    assert log.num_ahead > 5
