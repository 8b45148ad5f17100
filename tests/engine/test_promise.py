"""The promise: a request's tokens and logits are the same bits whatever else the engine does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import LENGTHS, PARAMS, TEXTS, Lab, Scene, outcome, start

from samebits import LLM, SamplingParams
from samebits.backends.discovery import Found, default_name, get
from samebits.backends.reference import ReferenceBackend
from samebits.core.tiers import Tier
from samebits.engine.request_options import RequestOptions
from samebits.engine.text_jobs import TextJob
from samebits.kernels.record import Kernel, KernelTable
from samebits.models.parts import Limits
from samebits.scheduler import Policy


@pytest.mark.parametrize("num_others", [7, 32, 100])
def test_among_others_in_any_order(lab: Lab, num_others: int) -> None:
    for seed in range(2):
        scene = Scene(num_others, seed, arrivals_a_step=1 + 9 * seed, cancelled_share=0.2)
        assert scene.play(lab.engine()) == lab.alone


@pytest.mark.parametrize("budget", [1, 16, 64, 512, "dynamic", "off"])
def test_with_any_budget(lab: Lab, budget: int | str) -> None:
    assert Scene(7, 3, other_lengths=(1, 200)).play(lab.engine(policy=Policy(budget))) == lab.alone


def test_prefix_hit_and_miss(lab: Lab) -> None:
    engine = lab.engine()
    assert Scene(5, 4).play(engine) == lab.alone
    before = engine.scheduler.num_cached_tokens
    assert Scene(5, 5).play(engine) == lab.alone  # all pages are known now
    assert engine.scheduler.num_cached_tokens >= before + 3 * 32
    without = lab.engine(shares_prefixes=False)
    assert Scene(5, 4).play(without) == lab.alone
    assert without.scheduler.num_cached_tokens == 0


@pytest.mark.parametrize("num_pages", [9, 12, 20, 40])
@pytest.mark.parametrize("budget", [16, "dynamic"])
def test_after_preemption_in_a_tight_pool(lab: Lab, num_pages: int, budget: int | str) -> None:
    scene = Scene(12, num_pages, arrivals_a_step=8, other_lengths=(1, 40))
    assert scene.play(lab.engine(num_pages, policy=Policy(budget))) == lab.alone
    assert num_pages > 12 or scene.num_preemptions > 0


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("chunks_before", [1, 2, 4])
def test_a_text_preempted_between_chunks_takes_no_row_twice(lab: Lab, name: str, chunks_before: int) -> None:
    engine = lab.engine(num_pages=9, policy=Policy(16))
    job = start(engine, name)
    for _ in range(chunks_before):
        engine.step()
    assert isinstance(job, TextJob)
    assert job.num_taken == min(16 * chunks_before, LENGTHS[name])
    urgent = engine.generate([5] * 60, PARAMS["greedy"], RequestOptions(priority=-1))  # both do not fit
    engine.complete(urgent)
    engine.complete(job)
    assert job.sequences[0].num_preemptions == (16 * chunks_before < LENGTHS[name])
    assert outcome(job) == lab.alone[name]


def test_texts_among_urgent_requests(lab: Lab) -> None:
    played = [Scene(20, seed, 0.1, 0.1, (40, 80), (-2, -1), TEXTS, copies=8) for seed in range(3)]
    for scene in played:
        assert scene.play(lab.engine(9, policy=Policy(5))) == {name: lab.alone[name] for name in TEXTS}
    assert sum(scene.num_cut_texts for scene in played) >= 10  # else it shows nothing


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_with_any_number_of_threads(lab: Lab, threads: int) -> None:
    lab.runner.backend.set_threads(threads)
    assert Scene(9, threads).play(lab.engine()) == lab.alone
    lab.runner.backend.set_threads(2)


def test_in_any_scene(lab: Lab) -> None:
    played: list[Scene] = []

    @given(
        seed=st.integers(0, 1 << 30),
        num_others=st.integers(0, 20),
        rate=st.sampled_from([0.2, 0.6, 4.0]),
        cancelled=st.sampled_from([0.0, 0.5]),
        num_pages=st.sampled_from([None, 9, 12, 16, 33]),
        budget=st.sampled_from([1, 5, 17, 17, "dynamic", "off"]),
        shares=st.booleans(),
    )
    @settings(max_examples=20, deadline=None, derandomize=True)
    def play(
        seed: int, num_others: int, rate: float, cancelled: float, num_pages: Any, budget: Any, shares: bool
    ) -> None:
        engine = lab.engine(num_pages, policy=Policy(budget), shares_prefixes=shares)
        scene = Scene(num_others, seed, rate, cancelled)
        assert scene.play(engine) == lab.alone
        assert engine.scheduler.pages.num_used == 0
        played.append(scene)

    play()
    assert sum(scene.num_preemptions for scene in played) > 50
    assert any(scene.num_cut_texts for scene in played)


@pytest.mark.parametrize(
    ("k_format", "v_format"), [("f32", "f32"), ("bf16", "f16"), ("q8_0", "q4_0"), ("q4_0", "bf16")]
)
def test_in_every_cache_format(random_tiny: Path, k_format: str, v_format: str) -> None:
    limits = Limits(600, 16, 64, max_positions=200, k_format=k_format, v_format=v_format)
    other = Lab(random_tiny, get(default_name()), limits)
    assert Scene(6, 1).play(other.engine(24)) == other.alone


@pytest.mark.parametrize("page_size", [1, 8, 32])
def test_page_size_changes_no_bit(random_tiny: Path, lab: Lab, page_size: int) -> None:
    limits = Limits(600, 16, 4096 // page_size, page_size, max_positions=200)
    other = Lab(random_tiny, get(default_name()), limits)
    assert other.alone == lab.alone
    assert Scene(6, 1).play(other.engine()) == lab.alone


def test_the_reference_gives_the_same_bits(random_tiny: Path, lab: Lab) -> None:
    limits = Limits(600, 16, 128, max_positions=200)
    reference = Lab(random_tiny, get("reference"), limits)
    assert reference.alone == lab.alone
    assert Scene(3, 2, watched=("greedy", "two samples")).play(reference.engine(20)) == {
        name: lab.alone[name] for name in ("greedy", "two samples")
    }


class OrderDependent(ReferenceBackend):
    """Products whose last bit depends on how many rows come together: what a tile choice by batch size does."""

    name = "order-dependent"

    def kernels(self) -> tuple[KernelTable, ...]:
        (table,) = super().kernels()
        planted = KernelTable("planted")
        for kernel in table:
            run = partial(self._product, kernel) if kernel.op.name in ("gemm", "gemm_q8") else kernel.run
            planted.add(Kernel(kernel.op, kernel.language, kernel.tier, _named(run)))
        return (planted,)

    @staticmethod
    def _product(kernel: Kernel, **arguments: Any) -> tuple[Any, ...]:
        (y,) = kernel.run(**arguments)
        return (np.nextafter(y, np.float32(2)) if len(y) > 3 else y,)


def _named(run: Any) -> Any:
    run.__name__ = getattr(run, "__name__", "planted")
    return run


def test_an_order_dependent_kernel_is_caught(random_tiny: Path) -> None:
    """The check can fail: this is what it looks like when it does."""
    backend = OrderDependent()
    limits = Limits(600, 16, 128, max_positions=200)
    planted = Lab(random_tiny, Found(backend.name, "test", backend, backend.probe()), limits)
    scene = Scene(4, 1, watched=("greedy",))
    assert scene.play(planted.engine(policy=Policy(7)))["greedy"] != planted.alone["greedy"]


def test_smollm2_among_others(smollm2: LLM) -> None:
    params = SamplingParams(max_tokens=16, temperature=0, hash_logits=True, seed=0, ignore_eos=True)
    prompts = ["The capital of France is", "Once upon a time, in a village by the sea,", "2 + 2 ="]
    want = [smollm2.generate([p], params)[0] for p in prompts]
    others = [f"Story number {i} begins like this: " + "word " * (7 * i % 90) for i in range(20)]
    assert smollm2.generate([*others[:9], *prompts, *others[9:]], params)[9:12] == want
    assert smollm2.runner.tier is Tier.PORTABLE
