"""What stop strings and log-probabilities of some requests cost all of them: `python benchmarks/delivery_overhead.py`.

Every variant decodes the same prompts; rounds alternate, so that a noisy machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from samebits import LLM, SamplingParams
from samebits.engine.engine import Engine

NUM_TOKENS, NUM_STOPS, STOP_CHARS, NUM_LOGPROBS = 24, 16, 1024, 20
PLAIN = SamplingParams(max_tokens=NUM_TOKENS, temperature=1.0, seed=1, ignore_eos=True)
STOPS = tuple((f" the {i} " + "and of to in a is that e" * STOP_CHARS)[:STOP_CHARS] for i in range(NUM_STOPS))
WISHES = {
    "log-probabilities": replace(PLAIN, logprobs=NUM_LOGPROBS),
    "stop strings": replace(PLAIN, stop=STOPS),
    "both": replace(PLAIN, logprobs=NUM_LOGPROBS, stop=STOPS),
}


def decode_seconds(engine: Engine, params: list[SamplingParams]) -> list[tuple[float, float]]:
    """Seconds of each step in which every request decodes, and the processor's seconds."""
    jobs = [engine.generate(range(100 + i, 116 + i), wish) for i, wish in enumerate(params)]
    while not all(len(job.answers[0].pieces) for job in jobs):
        engine.step()
    seconds = []
    while not any(job.is_done for job in jobs):
        started, worked = time.perf_counter(), time.process_time()
        engine.step()
        seconds.append((time.perf_counter() - started, time.process_time() - worked))
    engine.complete(*jobs)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=8, help="in every step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    llm = LLM(
        given.model, context_len=512, threads=given.threads, max_sequences=given.requests, sampling_defaults="neutral"
    )
    asked = {f"{name}, {count}": (wish, count) for name, wish in WISHES.items() for count in (1, given.requests)}
    variants = {"nothing": [PLAIN] * given.requests}
    variants |= {name: [wish] * count + [PLAIN] * (given.requests - count) for name, (wish, count) in asked.items()}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(given.rounds):
        for name, params in variants.items():
            seconds[name] += decode_seconds(llm.engine, params)
    figures = {
        name: tuple(1e3 * statistics.median(column) for column in zip(*values, strict=True))
        for name, values in seconds.items()
    }
    table = Table("asked for, by how many", "step, ms", "ratio", "processor, ms", "ratio")
    for name, times in figures.items():
        ratios = [ours / plain for ours, plain in zip(times, figures["nothing"], strict=True)]
        table.add_row(name, *(f"{x:.2f}" for pair in zip(times, ratios, strict=True) for x in pair))
    Console().print(f"{given.requests} requests decode", table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
