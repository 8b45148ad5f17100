"""The engine's manners: mistakes, faults, cancellation, deadlines, windows, and what observers are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_tiny import write_random_tiny
from scenes import LIMITS, PARAMS, Lab, Scene, prompt_of

from samebits import LLM, SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.core.errors import BadInput
from samebits.core.step import StepBatch
from samebits.engine.engine import Engine
from samebits.engine.job import Generation, Job, RequestFailed
from samebits.engine.observer import StepStats
from samebits.engine.request_options import RequestOptions
from samebits.engine.runner import StepResult
from samebits.models.parts import Limits
from samebits.scheduler import Policy, StepPlan

GREEDY = PARAMS["greedy"]


def ask(engine: Engine, name: str = "greedy", **options: Any) -> Generation:
    return engine.generate(prompt_of(name, engine.runner.vocab_size), PARAMS[name], RequestOptions(**options))


def test_options_by_name_are_those_of_the_record(lab: Lab) -> None:
    engine = lab.engine()
    by_name = engine.generate([5, 6], PARAMS["greedy"], deadline=9.5)
    assert by_name.deadline == ask(engine, deadline=9.5).deadline == 9.5
    with pytest.raises(TypeError, match="dead_line"):
        engine.generate([5, 6], PARAMS["greedy"], dead_line=9.5)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "prompt is no tokens, but must be at least one"),
        ([5] * 400, "prompt has 400 tokens, but must have fewer than 400"),
        ([5, -1], "token id is -1, but must be from 0 "),
        ([5, 10**30], "token id is 1000000000000000000000000000000, but must be from 0 "),
    ],
)
def test_a_prompt_that_can_never_run_is_refused(lab: Lab, prompt: list[int], message: str) -> None:
    engine = lab.engine()
    neighbour = ask(engine)
    with pytest.raises(BadInput) as error:
        engine.generate(prompt, GREEDY)
    assert str(error.value).startswith(message)
    engine.complete(neighbour)
    assert neighbour.completions() == lab.alone["greedy"]


def test_a_prompt_longer_than_the_pool_is_refused(lab: Lab) -> None:
    with pytest.raises(BadInput, match=r"prompt has 130 tokens, but must have fewer than 128"):
        lab.engine(num_pages=9).generate([5] * 130, GREEDY)


def test_an_answer_ends_where_the_pool_does(lab: Lab) -> None:
    engine = lab.engine(num_pages=4)
    job = engine.generate([5] * 40, SamplingParams(max_tokens=100, temperature=0, ignore_eos=True))
    engine.complete(job)
    assert (len(job.answers[0].token_ids), job.answers[0].finish_reason) == (8, "length")


@pytest.mark.parametrize("steps_before", [0, 1, 5])
def test_cancelling_leaves_the_others_alone(lab: Lab, steps_before: int) -> None:
    engine = lab.engine()
    kept, dropped = ask(engine, "two samples"), ask(engine)
    for _ in range(steps_before):
        engine.step()
    engine.cancel(dropped)
    engine.cancel(dropped)  # twice is once
    engine.complete(kept)
    assert kept.completions() == lab.alone["two samples"]
    (cut,) = dropped.completions()
    assert cut.finish_reason == "cancelled"
    assert cut.token_ids == lab.alone["greedy"][0].token_ids[: len(cut.token_ids)]
    assert engine.scheduler.pages.num_used == 0
    assert engine.is_idle


def test_a_fault_ends_the_requests_of_its_step_and_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lab.engine()
    hit = [ask(engine), ask(engine, "two samples")]
    for _ in range(3):
        engine.step()
    run = lab.runner.run

    def broken(batch: StepBatch) -> StepResult:
        raise MemoryError("no room on the device")

    monkeypatch.setattr(lab.runner, "run", broken)
    engine.step()
    monkeypatch.setattr(lab.runner, "run", run)
    for job in hit:
        assert job.is_done
        with pytest.raises(RequestFailed, match="MemoryError: no room on the device"):
            job.completions()
    assert engine.scheduler.pages.num_used == 0
    engine.scheduler.check_integrity()
    assert Scene(5, 1).play(engine) == lab.alone


def test_logits_that_are_not_numbers_fail_their_request_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lab.engine()
    spoiled, fine = ask(engine), ask(engine, "shaped")
    run = engine._run

    def spoil(plan: StepPlan) -> StepResult:
        result = run(plan)
        for sequence, row in zip(plan.sampled, plan.sampled_rows, strict=True):
            if sequence in spoiled.sequences:
                result.logits[row, 3] = np.nan
        return result

    monkeypatch.setattr(engine, "_run", spoil)
    engine.complete(spoiled, fine)
    with pytest.raises(RequestFailed, match="NaN"):
        spoiled.completions()
    assert fine.completions() == lab.alone["shaped"]


def test_a_deadline_keeps_what_is_there(lab: Lab) -> None:
    now = [0.0]
    engine = lab.engine(clock=lambda: now[0])
    late, other = ask(engine, deadline=5.0), ask(engine, "shaped", deadline=1000.0)
    for _ in range(5):
        engine.step()
    now[0] = 6.0
    engine.complete(late, other)
    (cut,) = late.completions()
    assert cut.finish_reason == "deadline"
    assert 0 < len(cut.token_ids) < 12
    assert other.completions() == lab.alone["shaped"]


def test_a_grammar_mask_is_obeyed_by_each_sample(lab: Lab) -> None:
    class Alternating:
        """Even tokens, then odd ones, and so on."""

        def __init__(self) -> None:
            self.accepted: list[int] = []

        def allowed(self) -> np.ndarray:
            return np.arange(lab.runner.vocab_size) % 2 == len(self.accepted) % 2

        def accept(self, token: int) -> None:
            self.accepted.append(token)

    engine = lab.engine()
    job, neighbour = ask(engine, "two samples", make_mask=Alternating), ask(engine)
    engine.complete(job, neighbour)
    for answer in job.completions():
        assert [t % 2 for t in answer.token_ids] == [i % 2 for i in range(10)]
    assert neighbour.completions() == lab.alone["greedy"]


def test_pages_behind_the_window_are_given_back(tmp_path: Path) -> None:
    from gguf_writer import U32

    path = write_random_tiny(tmp_path / "window.gguf", **{"llama.attention.sliding_window": (U32, 32)})
    for backend in ("reference", default_name()):
        windowed = Lab(path, get(backend), Limits(600, 4, 64, max_positions=400))
        assert windowed.runner.windows == (32,)
        params = SamplingParams(max_tokens=30, temperature=0, seed=0, hash_logits=True, ignore_eos=True)
        answers, most_used = [], []
        for window in (32, None):
            windowed.runner.windows = (window,)
            engine = windowed.engine(policy=Policy(64))
            job, used = engine.generate(prompt_of("two samples", 200) * 2, params), 0
            while not job.is_done:
                engine.step()
                used = max(used, engine.scheduler.pages.num_used) if job.events else 0
            answers.append(job.completions())
            most_used.append(used)
        assert answers[0] == answers[1]
        assert most_used[0] <= 4 < most_used[1]


def test_observers_see_steps_and_ends(lab: Lab) -> None:
    class Notes:
        def __init__(self) -> None:
            self.steps: list[StepStats] = []
            self.ended_jobs: list[Job] = []

        def stepped(self, stats: StepStats) -> None:
            self.steps.append(stats)

        def ended(self, job: Job) -> None:
            self.ended_jobs.append(job)

    notes = Notes()
    engine = lab.engine(observer=notes)
    first, second = ask(engine), ask(engine, "shaped")
    engine.complete(first, second)
    assert {id(j) for j in notes.ended_jobs} == {id(first), id(second)}
    assert sum(s.num_prefill_tokens for s in notes.steps) == 40 + 33 - first.sequences[0].num_cached_tokens - 32
    assert sum(s.num_decodes for s in notes.steps) == 11 + 8
    assert all(s.num_used_pages + s.num_free_pages == LIMITS.num_pages - 1 for s in notes.steps)
    assert first.arrived_at <= first.first_token_at <= first.ended_at


def test_a_stream_that_is_left_frees_its_pages(tiny: LLM) -> None:
    for _ in tiny.stream("hello hi", SamplingParams(max_tokens=50, temperature=0, ignore_eos=True)):
        break
    assert tiny.engine.is_idle
    assert tiny.engine.scheduler.pages.num_used == 0


def test_one_wrong_prompt_runs_none(tiny: LLM) -> None:
    with pytest.raises(BadInput, match="no tokens"):
        tiny.generate([[5, 6], []])
    assert tiny.engine.is_idle
