"""Microseconds a step that the scheduler and the page cache take: `python benchmarks/scheduler_overhead.py [--json F]`.

All sequences decode, and nothing computes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits.cache import PageCache
from samebits.scheduler import Policy, PromptRequest, Scheduler

PROMPT_TOKENS, NUM_STEPS = 100, 160


def measure(num_sequences: int) -> dict[str, float]:
    """Microseconds of plan and commit together, over steps in which all sequences decode."""
    num_pages = 1 + num_sequences * -(-(PROMPT_TOKENS + NUM_STEPS) // 16)
    pages = PageCache(num_pages, 16, num_sequences, 8192)
    scheduler = Scheduler(pages, Policy(prefill_budget=num_sequences * PROMPT_TOKENS))
    rng = np.random.default_rng(0)
    for _ in range(num_sequences):
        scheduler.add(PromptRequest(rng.integers(1, 40000, PROMPT_TOKENS).astype(np.int32)))
    both = []
    for step in range(NUM_STEPS):
        started = time.perf_counter()
        plan = scheduler.plan()
        planned = time.perf_counter()
        tokens = np.full(len(plan.sampled), step, np.int32)
        resumed = time.perf_counter()
        scheduler.commit(plan, tokens)
        both.append(1e6 * (time.perf_counter() - resumed + planned - started))
    both = both[1:]  # the first admits everybody
    return {"median_us": statistics.median(both), "mean_us": statistics.mean(both), "worst_us": max(both)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    results = {count: measure(count) for count in (1, 32, 256, 1000)}
    table = Table("sequences", "median, us", "mean, us", "worst, us", title="scheduler and page cache, a step")
    for count, figures in results.items():
        table.add_row(str(count), *(f"{value:,.0f}" for value in figures.values()))
    Console().print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
