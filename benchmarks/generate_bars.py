"""New tokens per second of many requests at once, and how long the device waits for the loop meanwhile.

python benchmarks/generate_bars.py [--tiers fast,portable] [--requests 64,128] [--step-tokens 512,2048,8192] [--json F]

A 7.4B llama with random weights answers requests of 512 prompt tokens with 128 new ones each, through an engine as
`LLM` has one. Every line is the median of some rounds after two that compile and capture.

The device waits for the loop from the end of a step's work, draws included, to the start of the next one's, by events
on its own clock in a further round; and while a captured graph is launched: what a step takes longer after a wait than
right behind another. --kernels shows kernels and waits under torch's profiler, which makes launches slower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from device_clock import DeviceClock
from rich.console import Console
from rich.table import Table

from samebits.backends import discovery
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.bench.shapes import SHAPES
from samebits.core.collector import collector_paused
from samebits.engine.engine import Engine
from samebits.engine.job import Job
from samebits.engine.observer import StepStats
from samebits.engine.runner import Runner
from samebits.engine.sampling import SamplingParams
from samebits.loaders.tokenizer import SpecialTokens, Tokenizer
from samebits.models.parts import Limits
from samebits.scheduler import Policy

PROMPT, NEW, PAGE = 512, 128, 16
BAR, LOOP_BAR = (
    6000,
    0.08,
)  # of 64 requests, fast: new tokens per second; the share of the time in which the device waits


class Words(Tokenizer):
    """A word for every id."""

    def __init__(self, vocab_size: int) -> None:
        words = [f" w{i}".encode() for i in range(vocab_size)]
        super().__init__("words", words, frozenset(), SpecialTokens(), max_token_bytes=8)

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> array[int]:
        return array("i", (int(word[1:]) for word in text.split()))


class Steps:
    """Watches an engine: what its steps held, and how long they took."""

    def __init__(self) -> None:
        self.stats: list[StepStats] = []

    def stepped(self, stats: StepStats) -> None:
        self.stats.append(stats)

    def ended(self, job: Job) -> None:
        """Nothing is asked of single jobs."""


@dataclass(frozen=True)
class Outcome:
    """One line; waits are those of a round of its own."""

    tier: str
    requests: int
    step_tokens: int
    tokens_per_second: float
    prompt_steps: int
    prompt_seconds: float
    decode_steps: int
    decode_seconds: float
    loop_share: float | None  # of the time in which the device waits for the loop
    between_us: float | None  # the median wait between two decode steps
    launch_us: float | None  # and while a graph is launched


@dataclass(frozen=True)
class Work:
    """What the device did, in nanoseconds."""

    start: int
    end: int
    name: str


def waits_between(works: Iterable[Work]) -> Iterator[tuple[int, str]]:
    """(nanoseconds, what came before and after) of each stretch in which nothing ran; works may overlap."""
    last: Work | None = None
    for work in sorted(works, key=lambda w: w.start):
        if last is not None and work.start > last.end:
            yield work.start - last.end, f"{last.name[:40]} > {work.name[:40]}"
        if last is None or work.end > last.end:
            last = work


def runner_for(fmt: str, tier: str, shape: str, backend: str, requests: int, step_tokens: int) -> Runner:
    """A random model with room for so many requests and a step of so many tokens."""
    config = SHAPES[shape]
    limits = Limits(
        max_tokens=max(step_tokens, requests + 128),
        max_sequences=requests,
        num_pages=1 + requests * (1 + -(-(PROMPT + NEW) // PAGE)),
        page_size=PAGE,
        max_positions=config.context_len,
    )
    return Runner(RandomCheckpoint(config, fmt), discovery.get(backend), limits, tier)


class Bench:
    """Requests on a model, in rounds."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.tier = runner, runner.tier.label
        self._tokenizer, self._vocab_size = Words(runner.vocab_size), runner.vocab_size

    def _round(self, requests: int, step_tokens: int, seed: int) -> tuple[float, list[StepStats]]:
        """Seconds from the first request to the last answer, and the steps. Prompts are new in every round."""
        rng, steps = np.random.default_rng(seed), Steps()
        policy = Policy("dynamic", step_tokens)  # as LLM's
        engine = Engine(self.runner, self._tokenizer, policy, observer=steps)
        prompts = [rng.integers(1, self._vocab_size, PROMPT).astype(np.int32) for _ in range(requests)]
        params = SamplingParams(max_tokens=NEW, temperature=0.8, top_p=0.95, ignore_eos=True, seed=1)
        started = time.perf_counter()
        jobs = [engine.generate(prompt, params) for prompt in prompts]
        with collector_paused():  # as LLM.generate does
            engine.complete(*jobs)
        seconds = time.perf_counter() - started
        for job in jobs:
            if len(job.completions()[0].token_ids) != NEW:
                raise SystemExit(f"an answer has {len(job.completions()[0].token_ids)} tokens, not {NEW}")
        return seconds, steps.stats

    def measure(self, requests: int, step_tokens: int, rounds: int, has_clock: bool) -> Outcome:
        """has_clock: whether the device's waits are measured too."""
        self._round(requests, step_tokens, seed=0)
        self._round(requests, step_tokens, seed=1)
        found = [self._round(requests, step_tokens, seed=2 + i) for i in range(rounds)]
        seconds, steps = sorted(found, key=lambda pair: pair[0])[len(found) // 2]
        prompts = [s for s in steps if s.num_prefill_tokens]
        decodes = [s for s in steps if not s.num_prefill_tokens]
        return Outcome(
            self.tier,
            requests,
            step_tokens,
            requests * NEW / seconds,
            len(prompts),
            sum(s.seconds for s in prompts),
            len(decodes),
            sum(s.seconds for s in decodes),
            *(self._waits(requests, step_tokens) if has_clock else (None, None, None)),
        )

    def _waits(self, requests: int, step_tokens: int) -> tuple[float, float, float]:
        """(share of a round's time in which the device waits, microseconds between decode steps, and of a launch)."""
        with DeviceClock(self.runner) as clock:
            seconds, steps = self._round(requests, step_tokens, seed=98)
        between = clock.between()
        num_decodes = sum(not s.num_prefill_tokens for s in steps)
        launch = clock.launch_seconds()
        share = (sum(between) + num_decodes * launch) / seconds
        return share, statistics.median(between[-num_decodes:]) * 1e6, launch * 1e6

    def profile(self, requests: int, step_tokens: int) -> tuple[Counter[str], Counter[str]]:
        """Nanoseconds of kernels by name, and of waits by what came before and after."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            self._round(requests, step_tokens, seed=99)
            torch.cuda.synchronize()
        events = [e for e in profiler.profiler.kineto_results.events() if e.device_type().name == "CUDA"]
        works = [Work(e.start_ns(), e.start_ns() + e.duration_ns(), e.name()) for e in events]
        kernels, waits = Counter[str](), Counter[str]()
        for work in works:
            kernels[work.name] += work.end - work.start
        for gap, between in waits_between(works):
            waits[between] += gap
        return kernels, waits


def line(o: Outcome) -> list[str]:
    is_bar = o.tier == "fast" and o.requests == 64
    cells = [o.tier, str(o.requests), f"{o.step_tokens:,}", f"{o.tokens_per_second:,.0f}", f"{BAR:,}" if is_bar else ""]
    cells += [f"{o.prompt_steps} / {o.prompt_seconds:.2f}", f"{o.decode_steps} / {o.decode_seconds:.2f}"]
    if o.loop_share is None:
        return [*cells, "", ""]
    return [*cells, f"{o.loop_share:.1%}", f"{o.between_us:.0f} + {o.launch_us:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiers", default="fast,portable")
    parser.add_argument("--requests", default="64,128", help="how many at once")
    parser.add_argument("--step-tokens", default="2048", help="the number of tokens that a step aims at")
    parser.add_argument("--format", default="q4_0")
    parser.add_argument("--shape", default="llama-7.4b", choices=sorted(SHAPES))
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-clock", action="store_true", help="leave out the device's waits")
    parser.add_argument("--kernels", type=int, default=0, help="print so many kernels and waits under torch's profiler")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    requests, step_tokens = ([int(n) for n in text.split(",")] for text in (asked.requests, asked.step_tokens))
    console, outcomes = Console(width=160), []
    columns = "tier", "requests", "step tokens", "new tok/s", "bar", "prompt steps / s", "decode steps / s"
    waits = f"the loop's share, bar {LOOP_BAR:.0%}", "between decodes + launch, us"
    table = Table(*columns, *waits, title=f"{asked.shape} {asked.format}")
    for tier in asked.tiers.split(","):
        runner = runner_for(asked.format, tier, asked.shape, asked.backend, max(requests), max(step_tokens))
        bench = Bench(runner)
        for count in requests:
            for tokens in step_tokens:
                outcomes.append(bench.measure(count, tokens, asked.rounds, not asked.no_clock))
                table.add_row(*line(outcomes[-1]))
                console.print(" | ".join(line(outcomes[-1])), highlight=False)
                for found in bench.profile(count, tokens) if asked.kernels else ():
                    for name, ns in found.most_common(asked.kernels):
                        console.print(f"    {ns * 1e-6:8.1f} ms {name[:110]}", highlight=False)
        del bench, runner
    console.print(table)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))


if __name__ == "__main__":
    main()
