"""The promise for mixtures: whom else a token's experts serve, hits, forks and preemption change no bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_tiny import write_random_tiny
from scenes import Lab, Scene

from samebits import LLM, SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.models.parts import Limits
from samebits.scheduler import Policy

LIMITS = Limits(max_tokens=600, max_sequences=16, num_pages=128, max_positions=200)
DATA = Path(__file__).parents[1] / "models" / "data"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model whose layers have 8 experts in Q8_0."""
    return write_random_tiny(tmp_path_factory.mktemp("models") / "mixture.gguf", num_experts=8)


@pytest.fixture(scope="module")
def mixture(path: Path) -> Lab:
    return Lab(path, get(default_name()), LIMITS)


def test_the_reference_gives_the_same_bits(path: Path, mixture: Lab) -> None:
    assert Lab(path, get("reference"), LIMITS).alone == mixture.alone


def test_among_32_others(mixture: Lab) -> None:
    assert Scene(32, 1, arrivals_a_step=3, cancelled_share=0.2).play(mixture.engine()) == mixture.alone


def test_prefix_hit_and_miss(mixture: Lab) -> None:
    engine = mixture.engine()
    assert Scene(5, 4).play(engine) == mixture.alone
    before = engine.scheduler.num_cached_tokens
    assert Scene(3, 5).play(engine) == mixture.alone  # all prefixes are known now
    assert engine.scheduler.num_cached_tokens >= before + 3 * 32


@pytest.mark.parametrize("budget", [5, 64])
def test_after_preemption_in_a_tight_pool(mixture: Lab, budget: int) -> None:
    scene = Scene(8, 12, arrivals_a_step=8, other_lengths=(1, 40))
    assert scene.play(mixture.engine(12, policy=Policy(budget))) == mixture.alone
    assert scene.num_preemptions > 0


@pytest.mark.parametrize("name", ["gpt_oss/model-mxfp4.gguf", "glm4moe", "qwen35moe", "nemotron_h_moe"])
def test_models_from_files(name: str) -> None:
    """Samples fork off, prompts share prefixes, pages are short: the answers of each prompt alone."""
    stem = [int(i * i + 3) % 90 for i in range(40)]
    prompts = [stem + [i, 2 * i + 1, 5] * (1 + i % 3) for i in range(4)] + [stem[:7], stem[:33], [1]]
    params = SamplingParams(max_tokens=24, temperature=0.9, seed=11, n=2, ignore_eos=True, hash_logits=True)
    alone = LLM(DATA / name, context_len=96, max_sequences=2, share_prefixes=False)
    expected = [answer for prompt in prompts for answer in alone.generate([prompt], params)]
    together = LLM(DATA / name, context_len=96, max_sequences=8, max_batch_tokens=24)
    for _ in range(2):  # the second time, prefixes are known
        assert together.generate(prompts, params) == expected
        together.engine.scheduler.check_integrity()
    assert together.engine.scheduler.num_cached_tokens > 4 * 32
