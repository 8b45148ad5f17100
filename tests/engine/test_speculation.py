"""The promise under speculation: whatever is guessed, answers and their logits are the same bits, in fewer steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guessing import Hostile, Knowing
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import LIMITS, PARAMS, Lab, Scene, outcome, start
from tiny_hybrid import open_hybrid

from samebits import SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.core.errors import BadInput
from samebits.engine.engine import Engine
from samebits.engine.job import Generation, RequestFailed
from samebits.engine.request_options import RequestOptions
from samebits.engine.runner import Runner
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts import Limits
from samebits.scheduler import Policy

MODELS = Path(__file__).parents[1] / "models" / "data"


def steps_of(engine: Engine, job: Generation) -> int:
    """Steps until it is done, integrity checked after each."""
    count = 0
    while not job.is_done:
        engine.step()
        engine.scheduler.check_integrity()
        count += 1
    return count


@pytest.mark.parametrize("name", PARAMS)
def test_good_guesses_take_fewer_steps(lab: Lab, name: str) -> None:
    counts = []
    for drafter in (None, Knowing(lab, 1.0)):
        engine = lab.engine(drafter=drafter)
        job = start(engine, name)
        assert isinstance(job, Generation)
        counts.append(steps_of(engine, job))
        assert outcome(job) == lab.alone[name]
        assert engine.scheduler.pages.num_used == 0
    assert counts[1] < 0.75 * counts[0]


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.9, 1.0])
def test_among_others_whatever_is_guessed(lab: Lab, chance: float) -> None:
    for seed in range(3):
        drafter = Knowing(lab, chance, seed)
        engine = lab.engine(drafter=drafter)
        assert Scene(6, seed, 1 + seed, cancelled_share=0.1).play(engine) == lab.alone
        assert drafter.num_asked
        assert engine.scheduler.pages.num_used == 0


def test_hostile_guesses(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    for seed in range(4):
        engine = lab.engine(drafter=Hostile(lab.runner.vocab_size, seed))
        assert Scene(5, seed, 2.0).play(engine) == lab.alone
    assert "a drafter failed: MemoryError: no room for guesses" in [record.message for record in caplog.records]


class Eager(Policy):
    """Guesses beside prompts too, whatever that costs."""

    def draft_room(self, num_decodes: int, num_prefill_tokens: int, max_sequences: int) -> int:
        most = self.max_step_tokens(max_sequences) - num_decodes - num_prefill_tokens
        return max(0, min(self.draft_batch_tokens, most))


def test_in_any_scene(lab: Lab) -> None:
    num_preemptions, taken = 0, []

    @given(
        seed=st.integers(0, 1 << 30),
        num_others=st.integers(0, 12),
        rate=st.sampled_from([0.2, 0.6, 4.0]),
        num_pages=st.sampled_from([None, 9, 12, 16, 33]),
        budget=st.sampled_from([1, 5, 17, "dynamic", "off"]),
        chance=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
        draft_tokens=st.sampled_from([2, 9, 64]),
        shares=st.booleans(),
    )
    @settings(max_examples=15, deadline=None, derandomize=True)
    def play(
        seed: int,
        num_others: int,
        rate: float,
        num_pages: Any,
        budget: Any,
        chance: float,
        draft_tokens: int,
        shares: bool,
    ) -> None:
        nonlocal num_preemptions
        policy = Eager(budget, draft_batch_tokens=draft_tokens)
        engine = lab.engine(num_pages, policy=policy, shares_prefixes=shares, drafter=Knowing(lab, chance, seed))
        scene = Scene(num_others, seed, rate, 0.1)
        assert scene.play(engine) == lab.alone
        assert engine.scheduler.pages.num_used == 0
        num_preemptions += scene.num_preemptions
        assert engine.speculation is not None
        taken.append(engine.speculation.num_taken)

    play()
    assert num_preemptions > 20
    assert sum(taken) > 100


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_at_the_edges_of_pages(random_tiny: Path, lab: Lab, page_size: int) -> None:
    limits = Limits(600, 16, 2048 // page_size, page_size, max_positions=200)
    runner = Runner(open_checkpoint(random_tiny), get(default_name()), limits)
    for chance in (0.0, 0.6, 1.0):
        engine = Engine(runner, lab.tokenizer, Policy(), drafter=Knowing(lab, chance, page_size))
        assert Scene(3, 1).play(engine) == lab.alone


class Alternating:
    """Even tokens, then odd ones, then an end."""

    def __init__(self, vocab_size: int) -> None:
        self._count, self._ids = 0, np.arange(vocab_size)

    def allowed(self) -> np.ndarray:
        return self._ids % 2 == self._count % 2

    def accept(self, token: int) -> None:
        if token % 2 != self._count % 2:
            raise ValueError(f"{token} is not allowed here")
        self._count += 1


WISHES = {
    "stop strings": {"stop": ("e", "t", "q"), "n": 2, "ignore_eos": True},
    "length": {"max_tokens": 7},
    "least": {"min_tokens": 5, "stop_token_ids": tuple(range(3, 130))},
    "ends": {"stop_token_ids": tuple(range(3, 60)), "include_stop": True},
    "words": {"bad_words": ("e", "a", "th"), "logprobs": 3},
    "allowed": {"allowed_token_ids": tuple(range(40, 80))},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.3, "n": 3},
    "grammar": {"n": 2, "logprobs": 1},
    "prompt": {"prompt_logprobs": 2, "n": 2},
}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("wish", WISHES)
def test_every_wish_of_a_request(lab: Lab, wish: str, temperature: float) -> None:
    vocab_size = lab.runner.vocab_size
    params = SamplingParams(
        **{"max_tokens": 24, "temperature": temperature, "seed": 5, "hash_logits": True, **WISHES[wish]}
    )
    options = {"make_mask": lambda: Alternating(vocab_size)} if wish == "grammar" else {}
    prompts = [[int(i * (7 + j) + 3) % 250 for i in range(13 + 5 * j)] for j in range(3)]

    def run(engine: Engine) -> Any:
        jobs = [engine.generate(prompt, params, RequestOptions(**options)) for prompt in prompts]
        counts = [steps_of(engine, job) for job in jobs]
        return sum(counts), [job.completions() for job in jobs]

    num_steps, want = run(lab.engine())
    for chance in (1.0, 0.7, 0.0):
        drafter = Knowing(lab, chance, seed=3)
        for prompt, answers in zip(prompts, want, strict=True):
            for i, answer in enumerate(answers):
                drafter.learn(prompt, answer.token_ids, 5, i)
        num_spent, found = run(lab.engine(drafter=drafter))
        assert found == want
        if chance == 1.0 and num_steps > 30:
            assert num_spent < 0.8 * num_steps


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "mistral"])
def test_windows(name: str) -> None:
    limits = Limits(300, 8, 64, page_size=4, max_positions=96)
    checkpoint = open_checkpoint(MODELS / name)
    runner, tokenizer = Runner(checkpoint, get(default_name()), limits), checkpoint.tokenizer()
    params = SamplingParams(max_tokens=50, temperature=0.9, seed=11, n=2, ignore_eos=True, hash_logits=True)
    prompts = [[int(i * i + j) % 90 for i in range(6 + 9 * j)] for j in range(3)]

    def run(drafter: Any) -> Any:
        engine = Engine(runner, tokenizer, Policy(17), drafter=drafter)
        jobs = [engine.generate(prompt, params) for prompt in prompts]
        for job in jobs:
            steps_of(engine, job)
        assert engine.scheduler.pages.num_used == 0
        assert all(group.num_used == 0 for group in engine.scheduler.pages.windows)
        return [job.completions() for job in jobs]

    want = run(None)
    for chance in (1.0, 0.8, 0.0):
        drafter = Knowing.__new__(Knowing)
        drafter.chance, drafter.most, drafter.vocab_size, drafter.num_asked = chance, 99, runner.vocab_size, 0
        drafter.rng, drafter.texts = np.random.default_rng(1), []
        for prompt, answers in zip(prompts, want, strict=True):
            for i, answer in enumerate(answers):
                drafter.learn(prompt, answer.token_ids, 11, i)
        assert run(drafter) == want


def test_a_model_with_recurrent_layers_refuses_in_a_line(random_tiny: Path, lab: Lab) -> None:
    runner = Runner(open_hybrid(random_tiny), get(default_name()), LIMITS)
    with pytest.raises(
        BadInput, match="engine: speculation is a model with recurrent layers, but must be a model that"
    ):
        Engine(runner, lab.tokenizer, Policy(), drafter=Hostile(9))


def test_logits_that_are_no_numbers_behind_a_wrong_guess_hurt_nobody(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lab.engine(drafter=Knowing(lab, 0.5, seed=1))
    job, run, num_spoiled = start(engine, "greedy"), engine._run, 0
    wanted = lab.alone["greedy"][0].token_ids

    def spoil(plan: Any) -> Any:
        nonlocal num_spoiled
        result = run(plan)
        known = len(job.answers[0].token_ids)  # type: ignore[attr-defined]
        guesses = plan.guesses.tolist()
        wrong = next((i for i, guess in enumerate(guesses) if guess != wanted[known + i]), len(guesses))
        if wrong + 1 < len(guesses):
            result.logits[wrong + 1 :, 3] = np.nan
            num_spoiled += 1
        return result

    monkeypatch.setattr(engine, "_run", spoil)
    engine.complete(job)
    assert num_spoiled
    assert outcome(job) == lab.alone["greedy"]


def test_logits_that_are_no_numbers_behind_right_guesses_fail_where_they_would(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the same tokens as without guesses."""
    pieces = []
    for drafter in (None, Knowing(lab, 1.0)):
        engine = lab.engine(drafter=drafter)
        job, run = start(engine, "greedy"), engine._run

        def spoil(plan: Any, run: Any = run) -> Any:
            result = run(plan)
            positions = plan.batch.positions[plan.batch.out_rows]
            result.logits[positions == 40 + 5, 3] = np.nan
            return result

        monkeypatch.setattr(engine, "_run", spoil)
        engine.complete(job)
        with pytest.raises(RequestFailed, match="NaN"):
            outcome(job)
        pieces.append(job.answers[0].pieces)  # type: ignore[attr-defined]
    assert pieces[0] == pieces[1]
    assert len(pieces[0]) == 7


@pytest.mark.parametrize("chance", [0.9, 0.2])
def test_on_the_reference(random_tiny: Path, lab: Lab, chance: float) -> None:
    runner = Runner(open_checkpoint(random_tiny), get("reference"), Limits(600, 16, 128, max_positions=200))
    engine = Engine(runner, lab.tokenizer, Policy(), drafter=Knowing(lab, chance))
    names = ("greedy", "two samples", "shaped")
    assert Scene(2, 2, watched=names).play(engine) == {name: lab.alone[name] for name in names}
    assert engine.speculation is not None
    assert engine.speculation.num_drafted
