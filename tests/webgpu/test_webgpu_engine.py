"""The engine's paths on WebGPU: many requests at once, shaped draws, pages that are short, texts that are scored."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.backends.interface import Backend
from samebits.core.errors import SamebitsError

pytest.importorskip("wgpu", reason="the webgpu extra is not installed")

from samebits.backends.webgpu.backend import WebGpuBackend
from samebits.backends.webgpu.device import Gpu, open_device

MODEL = Path(__file__).parents[1] / "models" / "data" / "llama"
PROMPTS = [list(range(1, 1 + length)) for length in (8, 20, 3, 1, 40, 8, 17, 33)]  # each a prefix of the longer ones
DRAWN = SamplingParams(max_tokens=4, temperature=0.9, top_k=7, top_p=0.9, min_p=0.01, seed=3, hash_logits=True)
SHAPED = SamplingParams(
    max_tokens=4, temperature=0.9, seed=3, repetition_penalty=1.2, presence_penalty=0.5, logit_bias={5: 2.0}
)
FORKED = SamplingParams(max_tokens=4, temperature=0.9, seed=3, n=2, hash_logits=True)  # pages are copied for the second
PATIENT = SamplingParams(max_tokens=40, temperature=0, seed=1, hash_logits=True)


class OwnDevice(WebGpuBackend):
    """On a device that no other test uses."""

    @cached_property
    def gpu(self) -> Gpu:
        return open_device()


@pytest.fixture(scope="module")
def models(webgpu: Backend) -> tuple[LLM, LLM]:
    """The same model on WebGPU and on the host, with few pages: long answers are put off and begun again."""
    return LLM(MODEL, backend=webgpu.name, num_pages=8), LLM(MODEL, backend="cpu", num_pages=8)


@pytest.mark.parametrize("params", [DRAWN, SHAPED, FORKED, PATIENT])
def test_requests_at_once_give_the_hosts_tokens_and_bits(models: tuple[LLM, LLM], params: SamplingParams) -> None:
    ours, theirs = (llm.generate(PROMPTS[:4] if params is PATIENT else PROMPTS, params) for llm in models)
    assert ours == theirs


@pytest.mark.parametrize("params", [PATIENT, SHAPED])
def test_guessed_tokens_change_no_bit(webgpu: Backend, models: tuple[LLM, LLM], params: SamplingParams) -> None:
    guessing = LLM(MODEL, backend=webgpu.name, num_pages=8, speculate=f"draft:{MODEL}")
    prompts = PROMPTS[1:3]
    assert guessing.generate(prompts, params) == models[1].generate(prompts, params)
    assert guessing.engine.speculation is not None
    assert guessing.engine.speculation.num_drafted > 0


def test_scores_and_embeddings_are_the_hosts(models: tuple[LLM, LLM]) -> None:
    ours, theirs = (llm.score(PROMPTS[4], top_k=3) for llm in models)
    assert ours == theirs
    assert np.array_equal(models[0].embed(PROMPTS[2]), models[1].embed(PROMPTS[2]))


@pytest.mark.usefixtures("webgpu")
def test_requests_after_the_loss_of_the_device_say_so_in_one_line() -> None:
    llm = LLM(MODEL, backend=f"{__name__}:OwnDevice")
    llm.runner.backend.gpu.device.destroy()
    for _ in range(2):
        with pytest.raises(SamebitsError, match="the device was lost; needs a new process") as caught:
            llm.generate(PROMPTS[0], DRAWN)
        assert "\n" not in str(caught.value)
