"""The estimate of a GPU's workspace: it grows with what it is made of, and a model's division uses it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from samebits.backends.discovery import Found
from samebits.backends.gpu.backend import CudaBackend
from samebits.backends.gpu.workspace import LOADED_BYTES, gpu_workspace
from samebits.backends.interface import Memory
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.bench.shapes import SHAPES
from samebits.engine.settings import EngineSettings
from samebits.engine.sizes import Division, divide, policy_for
from samebits.models.checkpoint import build_step
from samebits.models.parts import Limits

GIB = 1 << 30


class Described(CudaBackend):
    """A GPU that is asked for its memory alone."""

    num_bytes = 0

    def memory(self) -> Memory:
        return Memory(self.num_bytes, self.num_bytes)


def divided(shape: str, gib: int) -> Division:
    backend = Described()
    backend.num_bytes = gib * GIB
    found, settings = Found("cuda", "a test", backend, None), EngineSettings(memory=0.9)
    return divide(RandomCheckpoint(SHAPES[shape], "q4_0"), found, settings, policy_for(settings, found))


def test_a_large_gpu_runs_128_sequences_with_all_their_pages() -> None:
    """64 clients of 512 + 128 tokens each have pages, with room for prefixes of others."""
    division = divided("llama-7.4b", 140)
    assert division.limits.max_sequences == 128
    assert division.limits.num_pages > 8000
    assert division.context_len == SHAPES["llama-7.4b"].context_len
    used = division.weight_bytes + division.workspace_bytes + division.page_bytes
    assert used <= 0.9 * 140 * GIB


@pytest.mark.parametrize("shape", ["llama-7.4b", "gpt-oss-20b", "hybrid-7b", "qwen3-30b-a3b"])
def test_a_small_gpu_gives_sequences_up_first(shape: str) -> None:
    division = divided(shape, 24)
    assert 8 <= division.limits.max_sequences <= 128
    assert (division.limits.num_pages - 1) * 16 >= 512 * division.limits.max_sequences
    assert division.context_len >= 8192


def test_the_workspace_grows_with_tokens_and_page_tables() -> None:
    def workspace(tokens: int, sequences: int) -> tuple[int, int]:
        limits = Limits(tokens, sequences, 2, max_positions=16)
        found = gpu_workspace(build_step(RandomCheckpoint(SHAPES["tiny"], "q4_0"), limits).graph)
        return found.num_bytes, found.bytes_per_entry

    assert LOADED_BYTES < workspace(256, 8)[0] < workspace(2048, 8)[0]
    assert workspace(2048, 8)[0] < workspace(2048, 256)[0]
    assert workspace(2048, 1)[1] > workspace(2048, 256)[1] > 0  # a sequence alone has its tokens' splits side by side
