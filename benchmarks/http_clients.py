"""New tokens per second, first tokens and gaps of many clients of `samebits serve`, each on its own connection.

python benchmarks/http_clients.py --backend cuda [--clients 64] [--tiers fast,portable] [--json FILE] [-- SERVE FLAGS]

A llama of 7.4B parameters in Q4_0 with random weights is written once, beside --model if that is absent. Every client
sends a prompt of its own as token ids and reads a stream to its end; the server runs with its defaults but for the
flags given. A round without a measurement comes first: it compiles kernels and captures graphs. Each tier is a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from random_model import write_model
from rich.console import Console
from rich.table import Table
from scale_client import Served, ask

from samebits.bench.shapes import SHAPES

NEEDED = {("cuda", "fast"): 4500, ("cuda", "portable"): 2500}  # new tokens/s of 64 clients with 512 + 128 tokens
FIRST_PLAIN_ID = 300  # ids below are control tokens and bytes of the random vocabulary


@dataclass(frozen=True)
class Round:
    """One round of all clients. Seconds are medians and 99th percentiles over clients, or over all gaps."""

    tier: str
    new_tokens: int
    seconds: float
    first_token: float
    first_token_p99: float
    gap: float
    gap_p99: float

    @property
    def tokens_per_second(self) -> float:
        return self.new_tokens / self.seconds


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def measure(port: int, tier: str, given: argparse.Namespace, seed: int) -> Round:
    """Send all requests at once and read their streams. Raise SystemExit if an answer is shorter than asked for."""
    drawn = random.Random(seed)

    def body() -> dict[str, Any]:
        prompt = [drawn.randrange(FIRST_PLAIN_ID, given.vocabulary) for _ in range(given.prompt_tokens)]
        options = {"include_usage": True, "continuous_usage_stats": True}
        return {
            **{"prompt": prompt, "max_tokens": given.new_tokens, "ignore_eos": True},
            **{"stream": True, "stream_options": options},
        }

    bodies = [body() for _ in range(given.clients)]
    start = time.perf_counter()
    answers = await asyncio.gather(*(ask(port, body) for body in bodies))
    seconds = time.perf_counter() - start
    counts = [answer.completion_tokens for answer in answers]
    if min(counts) < given.new_tokens:
        raise SystemExit(f"an answer ended after {min(counts)} tokens of {given.new_tokens}")
    firsts, gaps = [a.gaps[0] for a in answers], [gap for a in answers for gap in a.gaps[1:]]
    return Round(
        tier,
        sum(counts),
        seconds,
        statistics.median(firsts),
        percentile(firsts, 0.99),
        statistics.median(gaps),
        percentile(gaps, 0.99),
    )


def rounds_of(tier: str, given: argparse.Namespace, flags: list[str]) -> list[Round]:
    """Start a server, run a round to warm up, and return the measured rounds."""
    started = time.perf_counter()
    with Served(str(given.model), "--backend", given.backend, "--numerics", tier, *flags) as server:
        print(f"{tier}: ready after {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
        warm = asyncio.run(measure(server.port, tier, given, 0))
        print(f"{tier}: the first round took {warm.seconds:.1f} s", file=sys.stderr, flush=True)
        return [asyncio.run(measure(server.port, tier, given, 1 + n)) for n in range(given.rounds)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--tiers", default="fast,portable")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", default="llama-7.4b", choices=sorted(SHAPES), help="the model to write")
    parser.add_argument("--format", default="q4_0")
    parser.add_argument("--model", type=Path, help="where the model is, or is written")
    parser.add_argument("--json", type=Path, help="write the rounds to this file")
    given, flags = parser.parse_known_args()
    given.model = given.model or Path("build") / f"{given.shape}-{given.format}.gguf"
    given.vocabulary = SHAPES[given.shape].vocab_size
    if not given.model.exists():
        given.model.parent.mkdir(exist_ok=True)
        write_model(SHAPES[given.shape], given.format, given.model)
    found = [one for tier in given.tiers.split(",") for one in rounds_of(tier, given, [f for f in flags if f != "--"])]
    table = Table("tier", "new tokens/s", "first token s", "99 %", "gap ms", "99 %", "needs")
    for tier in given.tiers.split(","):
        own = sorted((one for one in found if one.tier == tier), key=lambda one: one.tokens_per_second)
        middle = own[len(own) // 2]
        times = (middle.first_token, middle.first_token_p99, 1e3 * middle.gap, 1e3 * middle.gap_p99)
        spread = f"{middle.tokens_per_second:.0f} ({own[0].tokens_per_second:.0f} to {own[-1].tokens_per_second:.0f})"
        table.add_row(tier, spread, *(f"{value:.2f}" for value in times), str(NEEDED.get((given.backend, tier), "")))
    Console().print(table)
    if given.json:
        told = [{**asdict(one), "tokens_per_second": one.tokens_per_second} for one in found]
        given.json.write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
