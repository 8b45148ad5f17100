"""The GPU backend's bars on a whole model: `python benchmarks/gpu_bars.py [--only q8_0/fast ...] [--json bars.json]`.

A 7.4B llama with random weights is made on the spot. Decode and prefill go through the runner, step after step, each
waited for; nothing is sampled. Figures are medians over steps. "generate" is what `LLM.generate` does with 64 requests,
sampling and text included: new tokens per second, in steps of up to 8,192 tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from generate_bars import Bench
from rich.console import Console
from rich.table import Table

from samebits.backends import discovery
from samebits.bench.ours import step_batch
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.bench.results import Row
from samebits.bench.shapes import SHAPES
from samebits.engine.runner import Runner
from samebits.models.parts import Limits

PROMPT, LONG_PROMPT, STEP, SEQUENCES = 512, 4096, 8192, 128
ALONE, REQUESTS, ROUNDS = "decode", 64, 3


@dataclass(frozen=True)
class Bar:
    """tokens/s of one kind of work; `need` is what must be reached."""

    fmt: str
    tier: str
    work: str  # "decode" of one sequence, "decode-64" of so many, "prefill", or "generate", see generate_bars.py
    need: float | None

    @property
    def name(self) -> str:
        return f"{self.fmt}/{self.tier}/{self.work}"


BARS = (
    Bar("q8_0", "fast", "decode", 390),
    Bar("q8_0", "fast", "prefill", 20000),
    Bar("q8_0", "fast", "decode-64", None),
    Bar("q8_0", "portable", "decode", 260),
    Bar("q8_0", "portable", "prefill", 15000),
    Bar("q8_0", "portable", "decode-64", None),
    Bar("q4_0", "fast", "decode", 530),
    Bar("q4_0", "fast", "decode-16", 5500),
    Bar("q4_0", "fast", "decode-64", 16000),
    Bar("q4_0", "fast", "decode-128", 20000),
    Bar("q4_0", "fast", "prefill", None),
    Bar("q4_0", "fast", "generate", 6000),
    Bar("q4_0", "portable", "decode", 352),
    Bar("q4_0", "portable", "decode-16", 4500),
    Bar("q4_0", "portable", "decode-64", 9500),
    Bar("q4_0", "portable", "decode-128", 11000),
    Bar("q4_0", "portable", "prefill", None),
    Bar("q4_0", "portable", "generate", None),
    Bar("bf16", "invariant", "decode", 217),
    Bar("bf16", "invariant", "prefill", 25000),
)


class Model:
    """A random model on the device, at one tier."""

    def __init__(self, fmt: str, tier: str, backend: str, shape: str) -> None:
        self._config = SHAPES[shape]
        limits = Limits(
            max_tokens=STEP,
            max_sequences=SEQUENCES,
            num_pages=1 + SEQUENCES * (1 + (PROMPT + 128) // 16),
            max_positions=LONG_PROMPT + 128,
        )
        checkpoint = RandomCheckpoint(self._config, fmt)
        self.runner = Runner(checkpoint, discovery.get(backend), limits, tier)

    def _seconds(self, row: Row, start: int, count: int, has_logits: bool = True) -> float:
        windows = [w for w in self.runner.windows[1:] if w]
        batch = step_batch(row, self.runner.limits, self._config.vocab_size, start, count, has_logits, windows)
        started = time.perf_counter()
        self.runner.run(batch).wait()
        return time.perf_counter() - started

    def _await_kernels(self) -> None:
        """Until the kernels of every size that was met are there: before that a step runs in a larger bucket."""
        self.runner.backend.await_compiled()

    def tokens_per_second(self, work: str, steps: int) -> float:
        if work == "generate":
            bench = Bench(self.runner)
            bench.measure(REQUESTS, STEP, 1, has_clock=False)  # meets the sizes of its steps
            self._await_kernels()
            return bench.measure(REQUESTS, STEP, ROUNDS, has_clock=False).tokens_per_second
        if work == "prefill":
            row = Row("prefill", LONG_PROMPT)
            self._seconds(row, 0, LONG_PROMPT)
            return LONG_PROMPT / statistics.median(self._seconds(row, 0, LONG_PROMPT) for _ in range(3))
        count = 1 if work == ALONE else int(work.removeprefix(f"{ALONE}-"))
        row = Row("decode", steps, num_sequences=count, depth=PROMPT)
        chunk = LONG_PROMPT // row.num_sequences
        for start in range(0, PROMPT, chunk):
            self._seconds(row, start, min(chunk, PROMPT - start), has_logits=False)
        self._seconds(row, PROMPT, 1)
        self._await_kernels()
        for i in range(3):  # the first runs, the second captures
            self._seconds(row, PROMPT + i, 1)
        times = [self._seconds(row, PROMPT + 3 + i, 1) for i in range(steps)]
        return row.num_sequences / statistics.median(times)


def measured(bars: list[Bar], backend: str, shape: str, steps: int, console: Console) -> Iterator[tuple[Bar, float]]:
    """Bars of one model and tier share its loading."""
    for fmt, tier in dict.fromkeys((bar.fmt, bar.tier) for bar in bars):
        started = time.perf_counter()
        model = Model(fmt, tier, backend, shape)
        console.print(f"{fmt} {tier}: loaded in {time.perf_counter() - started:.1f} s", highlight=False)
        for bar in bars:
            if (bar.fmt, bar.tier) == (fmt, tier):
                started = time.perf_counter()
                value = model.tokens_per_second(bar.work, steps)
                console.print(
                    f"  {bar.work}: {value:,.0f} tok/s ({time.perf_counter() - started:.1f} s)", highlight=False
                )
                yield bar, value
        del model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--shape", default="llama-7.4b", choices=sorted(SHAPES))
    parser.add_argument("--only", action="append", default=[], help="part of a bar's name, such as q8_0/fast/decode")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    console = Console()
    bars = [bar for bar in BARS if not asked.only or any(text in bar.name for text in asked.only)]
    results = {}
    table = Table(title=f"{asked.shape}, tokens/s")
    for column in ("weights / tier / work", "tok/s", "bar", "verdict"):
        table.add_column(column)
    for bar, value in measured(bars, asked.backend, asked.shape, asked.steps, console):
        verdict = "" if bar.need is None else "met" if value >= bar.need else "missed"
        results[bar.name] = {"tokens_per_second": value, "need": bar.need, "verdict": verdict}
        table.add_row(bar.name, f"{value:,.0f}", "" if bar.need is None else f"{bar.need:,.0f}", verdict)
        if asked.json:
            asked.json.write_text(json.dumps(results, indent=1))
    console.print(table)


if __name__ == "__main__":
    main()
