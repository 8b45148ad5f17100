"""Seconds that an answer takes beside other processes that keep the processors busy, by the number of threads:
`python benchmarks/threads_under_load.py`.

The script starts the busy processes itself and ends them. Numbers of threads take turns within a load, so that a noisy
machine disturbs all alike. "automatic" is what a model runs with unless told otherwise; it starts anew in every round,
as in a new process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.table import Table

from samebits import LLM, SamplingParams
from samebits.bench.ceiling import usable_threads
from samebits.engine.engine import Engine

AUTOMATIC = "automatic"
SETTLE_SECONDS = 0.3  # until busy processes have started


@contextmanager
def busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def seconds_of_answer(engine: Engine, first_token: int, prompt_tokens: int, new_tokens: int) -> float:
    prompt = [(first_token + i) % 200 for i in range(prompt_tokens)]
    started = time.perf_counter()
    engine.complete(engine.generate(prompt, SamplingParams(max_tokens=new_tokens, temperature=0, ignore_eos=True)))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2, 3], help="numbers of threads, without adaption"
    )
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 2, 8, 15], help="numbers of busy processes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=12, help="new tokens of an answer")
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    if not given.threads or given.threads[0] != 1:
        parser.error("--threads must begin with 1, which the other numbers are compared with")
    llm = LLM(given.model, backend="cpu", max_sequences=1, share_prefixes=False, sampling_defaults="neutral")
    backend = llm.runner.backend
    seconds_of_answer(llm.engine, 0, given.prompt_tokens, given.tokens)
    figures: dict[str, dict[str, list[float]]] = {}
    for load in given.loads:
        seconds: dict[str, list[float]] = {str(side): [] for side in (*given.threads, AUTOMATIC)}
        with ExitStack() as stack:
            for _ in range(load):
                stack.enter_context(busy_process())
            time.sleep(SETTLE_SECONDS)
            for round_number in range(given.rounds):
                for side, times in seconds.items():
                    if side == AUTOMATIC:
                        backend.limit_threads(usable_threads())
                    else:
                        backend.set_threads(int(side))
                    times.append(seconds_of_answer(llm.engine, round_number, given.prompt_tokens, given.tokens))
        figures[str(load)] = seconds
    table = Table(
        title=f"{given.tokens} tokens of {given.model}, {usable_threads()} processors: median seconds (range)"
    )
    for column in (
        "busy processes",
        *(f"{count} threads" for count in given.threads),
        AUTOMATIC,
        "automatic / 1 thread",
    ):
        table.add_column(column, justify="right")
    for name, seconds in figures.items():
        medians = {side: statistics.median(times) for side, times in seconds.items()}
        cells = [f"{medians[side]:.3f} ({min(times):.3f} to {max(times):.3f})" for side, times in seconds.items()]
        table.add_row(name, *cells, f"{medians[AUTOMATIC] / medians['1']:.2f}")
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
