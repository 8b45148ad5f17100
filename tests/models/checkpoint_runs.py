"""Runs the tiny checkpoints of tests/models/data, made by tools/make_tiny_checkpoints.py, on the reference backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from samebits.backends.discovery import get
from samebits.core.step import StepBatch, lay_out
from samebits.engine.runner import Runner
from samebits.models.checkpoint import Checkpoint, open_checkpoint
from samebits.models.parts import Limits

DATA = Path(__file__).parent / "data"
NAMES = (
    "llama",
    "llama31",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3_bf16",
    "gemma2",
    "gemma3",
    "phi3",
    "phi3_short",
    "yarn",
)
EXACT_NAMES = tuple(name for name in NAMES if name != "qwen3_bf16")  # float32 weights: nothing is rounded to 16 bits
HYBRID_NAMES = (
    "qwen3next",
    "qwen35",
    "mamba2",
    "lfm2",
    "granitehybrid",
    "falcon_h1",
    "falcon_h1_norm",
    "nemotron_h",
)
MIXTURE_NAMES = (
    "mixtral",
    "qwen3moe",
    "qwen3moe_mixed",
    "granitemoe",
    "glm4moe",
    "gpt_oss",
    "qwen3next_moe",
    "qwen35moe",
    "granitehybrid_moe",
    "nemotron_h_moe",
    "nemotron_h_latent",
)
PAGE_SIZE = 4  # small, so that prompts and windows end inside pages
HYBRID_PAGE_SIZE = 16  # the only one of models with states in slots
NUM_PAGES = 48  # two prompts' worth at that size


@dataclass(frozen=True)
class Expected:
    """What transformers computed; `rounded` with inputs of matrix products in 16 bits, where that was made."""

    token_ids: np.ndarray
    logits: np.ndarray
    rounded: np.ndarray | None

    @property
    def scale(self) -> float:
        """What errors are relative to."""
        return float(np.abs(self.logits).max())


@dataclass(frozen=True)
class Part:
    """One sequence's share of a step: its new tokens, the position of the first, its pages in token order, and its
    slot, which is else its place in the step."""

    token_ids: np.ndarray
    start: int
    pages: Iterable[int]
    slot: int | None = None


@cache
def expected(name: str) -> Expected:
    with np.load(DATA / name / "expected.npz") as stored:
        return Expected(stored["token_ids"], stored["logits"], stored.get("rounded"))


def make_runner(checkpoint: Checkpoint, kv_format: str = "f32", page_size: int | None = None) -> Runner:
    """Portable bits; a float32 cache by default, so that it rounds nothing."""
    page_size = page_size or (HYBRID_PAGE_SIZE if checkpoint.config.recurrence else PAGE_SIZE)
    limits = Limits(96, 16, NUM_PAGES, page_size, max_positions=64, k_format=kv_format, v_format=kv_format)
    return Runner(checkpoint, get("reference"), limits, "portable")


def step_batch(parts: list[Part], page_size: int, windows: Iterable[int | None] = ()) -> StepBatch:
    """The step in which every part advances; all rows are wanted."""
    counts = np.array([len(p.token_ids) for p in parts], np.int32)
    starts = np.array([p.start for p in parts], np.int32)
    rows = np.array([i if p.slot is None else p.slot for i, p in enumerate(parts)], np.int32)
    tables = np.zeros((rows.max() + 1, NUM_PAGES), np.int32)
    for row, part in zip(rows, parts, strict=True):
        pages = list(part.pages)
        tables[row, : len(pages)] = pages
    return lay_out(
        token_ids=np.concatenate([p.token_ids for p in parts]).astype(np.int32),
        starts=starts,
        counts=counts,
        out_rows=np.arange(counts.sum(), dtype=np.int32),
        page_size=page_size,
        tables=tables,
        rows=rows,
        window_tables=dict.fromkeys(windows, tables),
    )


def run_prompt(
    runner: Runner,
    token_ids: np.ndarray,
    cuts: Iterable[int] = (),
    pages: Iterable[int] = range(NUM_PAGES),
    slot: int | None = None,
) -> np.ndarray:
    """Logits of every position; a new step starts at position 0 and at every cut."""
    size = runner.limits.page_size
    spans = pairwise((0, *cuts, len(token_ids)))
    parts = [Part(token_ids[start:end], start, pages, slot) for start, end in spans]
    steps = [step_batch([part], size, runner.windows[1:]) for part in parts]
    return np.concatenate([np.array(runner.run(step).logits) for step in steps])  # the next step may overwrite them


@cache
def whole_prompt(file: str, kv_format: str = "f32") -> np.ndarray:
    """Logits of a checkpoint's whole prompt in one step. `file`: a name, or name/file.gguf."""
    runner = make_runner(open_checkpoint(DATA / file), kv_format)
    return run_prompt(runner, expected(file.split("/")[0]).token_ids)


def relative_error(got: np.ndarray, want: np.ndarray, scale: float) -> float:
    """The largest error over `scale`."""
    return float(np.abs(got - want).max() / scale)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
