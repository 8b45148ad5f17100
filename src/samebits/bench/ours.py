"""Samebits as a side: steps of a runner on given tokens. Nothing is sampled, as in the peers' own benchmarks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samebits.backends import discovery
from samebits.backends.discovery import Found
from samebits.backends.interface import Backend
from samebits.bench.measured_rows import limits_for
from samebits.bench.results import Row
from samebits.core.errors import Unavailable
from samebits.core.step import StepBatch, lay_out
from samebits.engine.runner import Runner
from samebits.loaders.obtain import obtain
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint
from samebits.models.parts import Limits


@dataclass(frozen=True)
class Settings:
    """How a model is run."""

    model: str
    backend: str
    threads: int
    numerics: str | None = None
    k_format: str = "f16"
    v_format: str = "f16"

    def open(self) -> FileCheckpoint:
        return open_checkpoint(obtain(self.model))

    def device(self) -> Found:
        """Return the backend with its threads limited, as a model runs there; raise Unavailable if it is not here."""
        found = discovery.get(self.backend)
        if found.backend is None:
            raise Unavailable(found.reason)
        found.backend.limit_threads(self.threads)
        return found


def weight_bytes(checkpoint: FileCheckpoint, num_tokens: int = 1) -> int:
    """Bytes of weights that a step of so many tokens reads at most: all but an embedding that is no head, of which it
    takes single rows, and but experts that no token chooses."""
    read = [name for name in checkpoint.tensors if name != "embed" or checkpoint.config.is_tied]
    mixture = checkpoint.config.mixture
    experts = [name for name in read if ".ffn.experts." in name]
    num_bytes = sum(map(checkpoint.num_bytes, read))
    if mixture is None:
        return num_bytes
    num_left = max(0, mixture.num_experts - mixture.top_k * num_tokens)
    return num_bytes - sum(checkpoint.num_bytes(name) * num_left // mixture.num_experts for name in experts)


def step_batch(
    row: Row,
    limits: Limits,
    vocab_size: int,
    start: int,
    count: int,
    has_logits: bool = True,
    windows: Sequence[int] = (),
) -> StepBatch:
    """Tokens start .. start + count - 1 of every sequence of a row, in pages that a shared pool handed out in turn."""
    sequences = np.arange(row.num_sequences, dtype=np.int32)
    num_pages = -(-(start + count) // limits.page_size)
    positions, owners = np.tile(np.arange(start, start + count), row.num_sequences), np.repeat(sequences, count)
    tables = (sequences[:, None] + row.num_sequences * np.arange(num_pages, dtype=np.int32)).astype(np.int32)
    ends = (sequences + 1) * count - 1
    return lay_out(
        token_ids=(1 + (31 * positions + 7 * owners) % (vocab_size - 1)).astype(np.int32),
        starts=np.full(row.num_sequences, start, np.int32),
        counts=np.full(row.num_sequences, count, np.int32),
        out_rows=ends if has_logits else ends[:0],
        page_size=limits.page_size,
        tables=tables,
        rows=sequences,
        window_tables={window: tables % limits.num_window_pages(window) for window in windows},
    )


class Ours:
    """A `Side` on a runner that is built for all the rows it will be given."""

    name = "samebits"

    def __init__(self, settings: Settings, checkpoint: FileCheckpoint, rows: Sequence[Row]) -> None:
        """Loads the model with room for the largest of the rows."""
        self.found = settings.device()
        chunk_tokens = (self.found.backend or Backend).step_tokens  # as LLM's
        limits = limits_for(rows, settings.k_format, settings.v_format, chunk_tokens)
        self.runner = Runner(checkpoint, self.found, limits, settings.numerics)
        self._vocab_size = checkpoint.config.vocab_size
        same = limits.k_format == limits.v_format
        self.settings = (limits.k_format if same else f"{limits.k_format}/{limits.v_format}",)
        self._filled: tuple[int, int] | None = None  # sequences and tokens of each that the cache holds

    def seconds(self, row: Row, setting: str) -> float:
        if row.kind == "prefill":
            self._filled = None
            return self._run(self._prompt(row, row.num_tokens))
        if self._filled != (row.num_sequences, row.depth):
            self._run(self._prompt(row, row.depth))
            self._filled = (row.num_sequences, row.depth)
        steps = [self._step(row, row.depth + i, 1) for i in range(row.num_tokens + 1)]
        self._run(steps[:1])
        return self._run(steps[1:])

    def _step(self, row: Row, start: int, count: int, has_logits: bool = True) -> StepBatch:
        windows = [w for w in self.runner.windows[1:] if w]
        return step_batch(row, self.runner.limits, self._vocab_size, start, count, has_logits, windows)

    def _prompt(self, row: Row, num_tokens: int) -> list[StepBatch]:
        """Every sequence's first tokens in chunks, logits of the last token only."""
        chunk = max(1, self.runner.limits.max_tokens // row.num_sequences)
        starts = range(0, num_tokens, chunk)
        return [self._step(row, s, min(chunk, num_tokens - s), s + chunk >= num_tokens) for s in starts]

    def _run(self, steps: list[StepBatch]) -> float:
        started = time.perf_counter()
        for step in steps:
            self.runner.run(step).wait()
        return time.perf_counter() - started
