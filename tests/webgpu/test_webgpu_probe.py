"""What the start-up probe asks a WebGPU device, and what it concludes from wrong answers and from wrong shaders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from samebits.backends.arithmetic import FEW, FLUSHES, operands
from samebits.backends.interface import Backend
from samebits.core.tiers import Tier
from samebits.kernels.wgsl.lib import compose

pytest.importorskip("wgpu")

from samebits.backends.webgpu.device import open_device
from samebits.backends.webgpu.probe import CONTRACTS, REASONS, answers_of, judged_answers
from samebits.backends.webgpu.questions import right_answers

SOURCES = ("snippets/float16", "snippets/bfloat16", "snippets/elementary")  # that defects are planted in
SMALLEST_NORMAL = np.float32(2.0**-126)


def contracted() -> np.ndarray:
    """a * b + c rounded once: of two float32 the product is exact in float64."""
    a, b, c = (x.astype(np.float64) for x in operands())
    return (a * b + c).astype(np.float32)


def one_bit_off(name: str) -> np.ndarray:
    """The right answers but the last that is neither 0 nor NaN, whose lowest bit is another."""
    answers = right_answers()[name].copy()
    place = np.flatnonzero((answers == answers) & (answers != 0))[-1]
    answers.reshape(-1).view({2: np.uint16, 4: np.uint32}[answers.itemsize])[place] ^= 1
    return answers


def test_this_device_keeps_every_tier_and_says_what_it_is(webgpu: Backend) -> None:
    caps = webgpu.probe()
    assert caps.refuted == {}
    assert any(api in caps.device for api in ("Vulkan", "Metal", "D3D12"))
    assert any(feature.startswith("subgroups of ") for feature in caps.features)


def test_right_answers_refute_nothing() -> None:
    assert judged_answers(right_answers()) == ((), {})


@pytest.mark.parametrize("name", ["products", *REASONS])
def test_one_wrong_bit_refutes_portable_alone(name: str) -> None:
    features, refuted = judged_answers({**right_answers(), name: one_bit_off(name)})
    assert features == ()
    assert list(refuted) == [Tier.PORTABLE]
    assert refuted[Tier.PORTABLE] == REASONS.get(name, "float32 products are not IEEE's")


def test_a_contraction_that_the_barrier_does_not_prevent_refutes_portable() -> None:
    features, refuted = judged_answers({**right_answers(), "sums": contracted(), "bare sums": contracted()})
    assert features == (CONTRACTS,)
    assert "contracted" in refuted[Tier.PORTABLE]


def test_a_contraction_without_a_barrier_is_a_feature() -> None:
    assert judged_answers({**right_answers(), "bare sums": contracted()}) == ((CONTRACTS,), {})


def test_flushing_is_a_feature() -> None:
    flushed = {
        name: np.where(np.abs(right) < SMALLEST_NORMAL, np.float32(0), right) if right.dtype == np.float32 else right
        for name, right in right_answers().items()
    }
    assert (flushed["products"][:FEW] == 0).all()
    assert judged_answers(flushed) == ((FLUSHES,), {})


@pytest.mark.parametrize(
    ("right", "planted", "reason"),
    [
        ("bitcast<u32>(tiny), rest < 0x0400u)", "0u, rest < 0x0400u)", "float16"),
        ("(bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u", "(bits + 0x8000u) >> 16u", "bfloat16"),
        ("let n = sub(shifted, ROUND_MAGIC);", "let n = floor(clamped * 1.44269504);", "exponential"),
    ],
)
def test_a_planted_shader_refutes_portable_on_the_device(
    webgpu: Backend, monkeypatch: pytest.MonkeyPatch, right: str, planted: str, reason: str
) -> None:
    sources: Callable[[str], str] = compose.source
    assert any(right in sources(name) for name in SOURCES)
    monkeypatch.setattr(compose, "source", lambda name: sources(name).replace(right, planted))
    _, refuted = judged_answers(answers_of(open_device()))  # one of its own: it knows no other shaders
    assert reason in refuted[Tier.PORTABLE]
