"""Whole models on WebGPU: the reference's tokens and logits, alone and in a batch of eight that shares pages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samebits import LLM
from samebits.backends.interface import Backend
from samebits.bench.shapes import llama

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS.parent / "benchmarks"))
CHECKPOINTS = ("qwen3_bf16", "gemma3")
LENGTH = 96  # of a context


def checkpoint(name: str, folder: Path) -> Path:
    """A tiny checkpoint, or a random llama in a block format."""
    from random_model import write_model

    if name in CHECKPOINTS:
        return TESTS / "models" / "data" / name
    return write_model(llama(1, 256, 256, 4, 2, 300, 128), name, folder / "model.gguf")


@pytest.mark.parametrize(("name", "temperature"), [("qwen3_bf16", 0), ("gemma3", 0.8), ("q4_1", 0.8)])
def test_the_reference_bits_alone_and_together(webgpu: Backend, name: str, temperature: float, tmp_path: Path) -> None:
    from webgpu_bits import SHARED_TOKENS, answers, bits, prompts_for

    path = checkpoint(name, tmp_path)
    reference = LLM(path, backend="reference", context_len=LENGTH)  # in one batch: numpy takes much longer one by one
    wanted = answers(reference, prompts_for(reference.runner.vocab_size), temperature)
    made = bits(LLM(path, backend="webgpu", context_len=LENGTH), temperature)
    assert made.alone == wanted
    assert made.together == wanted
    assert made.num_shared >= 8 * (SHARED_TOKENS // 16) * 16
