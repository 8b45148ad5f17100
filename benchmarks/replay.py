"""What replaying an answer costs, against a prompt of as many tokens and against generating it again.

    python benchmarks/replay.py

Variants take turns, so that a noisy machine disturbs all alike. A prompt needs the logits of its last token alone, a
replay those of every token of the answer: "prompt, all logits" computes as many. "no links" verifies the answer without
hashing its rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from samebits import LLM, SamplingParams
from samebits.engine.notary import params_of
from samebits.engine.request_options import RequestOptions
from samebits.receipts.record import Receipt

NUM_PROMPT = 16


def variants(llm: LLM, receipt: Receipt) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    tokens = [*receipt.prompt_ids, *receipt.answer.token_ids]
    wish = params_of(receipt.sampling)
    engine = llm.engine

    def no_links() -> None:
        job = engine.generate(receipt.prompt_ids, wish, RequestOptions(drafted=receipt.answer.token_ids))
        engine.complete(job)

    def all_logits() -> None:
        job = engine.generate(tokens, SamplingParams(max_tokens=0, prompt_logprobs=0))
        job.take_rows = lambda position, logits, hidden: position + len(logits) == len(tokens)  # type: ignore[method-assign]
        engine.complete(job)

    return {
        "prompt": lambda: llm.generate([tokens], SamplingParams(max_tokens=1, temperature=0)),
        "prompt, all logits": all_logits,
        "replay, no links": no_links,
        "replay": lambda: llm.replay(receipt),
        "generation": lambda: llm.generate([receipt.prompt_ids], wish),
        "generation, with a receipt": lambda: llm.generate([receipt.prompt_ids], replace(wish, receipt=True)),
    }


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and the processor's seconds."""
    started, worked = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - worked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--backend")
    parser.add_argument("--tokens", type=int, default=256, help="of the answer")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    length = NUM_PROMPT + given.tokens + 1
    llm = LLM(
        given.model,
        backend=given.backend,
        context_len=length,
        threads=given.threads,
        share_prefixes=False,
        sampling_defaults="neutral",
    )
    wish = SamplingParams(max_tokens=given.tokens, temperature=given.temperature, seed=1, ignore_eos=True, receipt=True)
    receipt = llm.generate([list(range(100, 100 + NUM_PROMPT))], wish)[0].receipt
    if receipt is None or not llm.replay(receipt)[0].is_same:
        raise SystemExit("the answer is not confirmed")
    runs = variants(llm, receipt)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name, run in runs.items():
            seconds[name].append(timed(run))
    figures = {name: [1e3 * statistics.median(c) for c in zip(*s, strict=True)] for name, s in seconds.items()}
    table = Table("", "ms", "of the prompt's", "processor, ms", "of the prompt's")
    for name, times in figures.items():
        ratios = [t / p for t, p in zip(times, figures["prompt"], strict=True)]
        table.add_row(name, f"{times[0]:.0f}", f"{ratios[0]:.2f}", f"{times[1]:.0f}", f"{ratios[1]:.2f}")
    Console().print(f"{given.tokens} tokens of {given.model} on {llm.runner.backend.name}", table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
