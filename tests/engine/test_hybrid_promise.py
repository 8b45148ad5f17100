"""The promise for models that keep states in slots: hits, forks, preemption and failed steps change no bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import PARAMS, Lab, Scene, outcome, start
from tiny_hybrid import open_hybrid

from samebits import LLM, SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.cache import SlotCopy
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.engine.copier import SlotCopier, at_once
from samebits.engine.engine import Engine
from samebits.engine.job import Job, RequestFailed
from samebits.engine.observer import StepStats
from samebits.engine.runner import Runner
from samebits.models.parts import Limits
from samebits.scheduler import Policy

LIMITS = Limits(max_tokens=600, max_sequences=16, num_pages=128, max_positions=200)


@pytest.fixture(scope="module", params=["hybrid", "without pages"])
def hybrid(request: pytest.FixtureRequest, random_tiny: Path) -> Lab:
    return Lab(open_hybrid(random_tiny, has_pages=request.param == "hybrid"), get(default_name()), LIMITS)


def test_the_reference_gives_the_same_bits(random_tiny: Path, hybrid: Lab) -> None:
    has_pages = any(name.endswith("k_cache") for name in hybrid.runner.graph.kinds)
    reference = Lab(open_hybrid(random_tiny, has_pages), get("reference"), LIMITS)
    assert reference.alone == hybrid.alone
    assert Scene(3, 2).play(reference.engine(20)) == hybrid.alone


def test_prefix_hit_and_miss(hybrid: Lab) -> None:
    engine = hybrid.engine()
    assert Scene(5, 4, cancelled_share=0.2).play(engine) == hybrid.alone
    before = engine.scheduler.num_cached_tokens
    assert Scene(3, 5).play(engine) == hybrid.alone  # all prefixes are known now
    assert engine.scheduler.num_cached_tokens >= before + 32 + 64 + 32 + 32  # of the four prompts that are continued
    without = hybrid.engine(shares_prefixes=False)
    assert Scene(5, 4).play(without) == hybrid.alone
    assert without.scheduler.num_cached_tokens == 0


@pytest.mark.parametrize("num_snapshots", [0, 1, 3])
def test_with_few_snapshots(hybrid: Lab, num_snapshots: int) -> None:
    engine = hybrid.engine(num_snapshots=num_snapshots)
    assert Scene(7, 6).play(engine) == hybrid.alone
    assert (engine.scheduler.num_cached_tokens > 0) == (num_snapshots > 0)


def test_in_any_scene(hybrid: Lab) -> None:
    played: list[Scene] = []

    @given(
        seed=st.integers(0, 1 << 30),
        num_others=st.integers(0, 20),
        rate=st.sampled_from([0.3, 4.0]),
        num_pages=st.sampled_from([9, 12, 16, 33]),
        num_snapshots=st.sampled_from([2, 16]),
        budget=st.sampled_from([5, 17, "dynamic"]),
    )
    @settings(max_examples=15, deadline=None, derandomize=True)
    def play(seed: int, num_others: int, rate: float, num_pages: int, num_snapshots: int, budget: Any) -> None:
        engine = hybrid.engine(num_pages, num_snapshots, policy=Policy(budget))
        scene = Scene(num_others, seed, rate, 0.2)
        assert scene.play(engine) == hybrid.alone
        assert engine.scheduler.pages.num_used == 0
        played.append(scene)

    play()
    assert sum(scene.num_preemptions for scene in played) > 10


class PrefillCount:
    """An observer that counts prompt tokens."""

    def __init__(self) -> None:
        self.num_tokens = 0

    def stepped(self, stats: StepStats) -> None:
        self.num_tokens += stats.num_prefill_tokens

    def ended(self, job: Job) -> None:
        pass


def test_32_users_with_one_prefix_compute_it_once(random_tiny: Path) -> None:
    checkpoint = open_hybrid(random_tiny)
    runner = Runner(checkpoint, get(default_name()), Limits(700, 32, 2600, max_positions=2048))
    prefix = [int(i * i + 3) % 250 for i in range(1024)]
    num_computed, answers = [], []
    for shares_prefixes in (False, True):
        count = PrefillCount()
        engine = Engine(runner, checkpoint.tokenizer(), Policy(), shares_prefixes=shares_prefixes, observer=count)
        jobs = [engine.generate([*prefix, *[5 + i] * 20], PARAMS["greedy"]) for i in range(32)]
        engine.complete(*jobs)
        num_computed.append(count.num_tokens)
        answers.append([job.completions() for job in jobs])
    assert answers[0] == answers[1]
    assert num_computed == [32 * 1044, 1024 + 32 * 20]


def leave_something(hybrid: Lab) -> None:
    """The first slots and snapshots hold what no watched request leaves behind."""
    engine = hybrid.engine()
    engine.complete(engine.generate([9] * 60, PARAMS["two samples"]))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize(("where", "budget"), [("copy_slots", 64), ("run", 20)])
def test_what_a_failed_step_leaves_is_not_believed(
    hybrid: Lab, monkeypatch: pytest.MonkeyPatch, where: str, budget: int, error: type[BaseException]
) -> None:
    """The snapshot after a prompt is not made, or a slot has moved on in a step that nobody saw."""
    leave_something(hybrid)
    engine = hybrid.engine(policy=Policy(budget))
    job = start(engine, "greedy")
    engine.step()
    runner, work = engine.runner, getattr(engine.runner, where)

    def fails(given: Any) -> None:
        if where == "run":
            work(given).wait()
        raise error("a kernel failed")

    monkeypatch.setattr(runner, where, fails)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    else:
        engine.complete(job)
    with pytest.raises(RequestFailed):
        job.check()
    monkeypatch.undo()
    engine.scheduler.check_integrity()
    assert Scene(watched=("greedy", "two samples")).play(engine) == {
        name: hybrid.alone[name] for name in ("greedy", "two samples")
    }


def test_a_fork_without_what_came_since_the_boundary_is_caught(hybrid: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: this is what it looks like when it does."""
    leave_something(hybrid)
    engine, copy = hybrid.engine(), hybrid.runner.copy_slots
    monkeypatch.setattr(
        hybrid.runner, "copy_slots", lambda copies: copy([c._replace(resumable_only=True) for c in copies])
    )
    assert Scene(watched=("two samples",)).play(engine)["two samples"] != hybrid.alone["two samples"]


def test_a_stale_snapshot_is_caught(hybrid: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, copy = hybrid.engine(), hybrid.runner.copy_slots
    job = start(engine, "greedy")
    engine.complete(job)
    assert outcome(job) == hybrid.alone["greedy"]
    first = engine.runner.limits.max_sequences
    monkeypatch.setattr(hybrid.runner, "copy_slots", lambda copies: copy([c for c in copies if c.source < first]))
    job = start(engine, "greedy")
    engine.complete(job)
    assert job.sequences[0].num_cached_tokens == 32
    assert outcome(job) != hybrid.alone["greedy"]


@pytest.mark.parametrize("name", ["mamba2", "qwen3next", "lfm2", "nemotron_h"])
def test_models_from_files(name: str) -> None:
    """Samples fork off, prompts share prefixes, pages are short: the answers of each prompt alone."""
    stem = [int(i * i + 3) % 90 for i in range(40)]
    prompts = [stem + [i, 2 * i + 1, 5] * (1 + i % 3) for i in range(6)] + [stem[:7], stem[:32], stem[:33], [1]]
    params = SamplingParams(max_tokens=24, temperature=0.9, seed=11, n=3, ignore_eos=True, hash_logits=True)
    path = Path(__file__).parents[1] / "models" / "data" / name
    alone = LLM(path, context_len=128, max_sequences=3, share_prefixes=False)
    expected = [answer for prompt in prompts for answer in alone.generate([prompt], params)]
    together = LLM(path, context_len=128, max_sequences=12, max_batch_tokens=24)
    for _ in range(2):  # the second time, prefixes are known
        assert together.generate(prompts, params) == expected
        together.engine.scheduler.check_integrity()
    assert together.engine.scheduler.num_cached_tokens > 10 * 32
    tight = LLM(path, context_len=128, max_sequences=12, max_batch_tokens=24, num_pages=20)
    assert tight.generate(prompts, params) == expected
    assert tight.engine.scheduler.num_preemptions > 0


copies = st.lists(
    st.builds(SlotCopy, st.integers(0, 5), st.integers(0, 5), st.booleans()).filter(lambda c: c.source != c.target)
)


@given(copies)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_copies_at_once_are_copies_one_after_another(asked: Sequence[SlotCopy]) -> None:
    found = get("reference")
    assert found.backend is not None
    start = {name: np.arange(6 * 2, dtype=np.float32).reshape(6, 2) + 100 * i for i, name in enumerate("ab")}
    buffers = {name: found.backend.alloc(TensorSpec((6, 2), "f32")) for name in start}
    for name, values in start.items():
        found.backend.copy_in(buffers[name], values)
    SlotCopier(found.backend, Tier.PORTABLE, buffers, ("a", "b"), ("a",)).copy(asked)
    for copy in asked:
        for name in "a" if copy.resumable_only else "ab":
            start[name][copy.target] = start[name][copy.source]
    for name, values in start.items():
        assert np.array_equal(np.asarray(found.backend.copy_out(buffers[name])), values)


def test_copies_of_a_step_take_few_launches() -> None:
    saves = [SlotCopy(slot, 100 + slot, True) for slot in range(50)]
    loads = [SlotCopy(120, slot, True) for slot in range(60, 90)]
    assert [len(part) for part in at_once([*saves, *loads])] == [50, 30]
