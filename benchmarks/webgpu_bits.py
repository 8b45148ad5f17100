"""A model's bits on WebGPU: `python benchmarks/webgpu_bits.py [--model smollm2] [--backend webgpu] [--against cpu]`.

SHA-256 of the logits of eight answers, each prompt alone and all in one batch whose prompts share pages, on both
backends; exit status 1 where a hash differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from samebits import LLM, SamplingParams

PARAMS = SamplingParams(max_tokens=6, temperature=0, hash_logits=True, ignore_eos=True)
NUM_PROMPTS, SHARED_TOKENS = 8, 40  # the latter: two pages, and a part of the next


@dataclass(frozen=True)
class Bits:
    """Tokens and the hash of the logits, prompt by prompt; how many prompt tokens of the batch lay in pages already."""

    alone: list[tuple[tuple[int, ...], str]]
    together: list[tuple[tuple[int, ...], str]]
    num_shared: int


def prompts_for(vocab_size: int) -> list[list[int]]:
    """Prompts of 43 to 64 tokens that begin alike."""
    shared = [(17 * i + 3) % vocab_size for i in range(SHARED_TOKENS)]
    return [shared + [(29 * i * (p + 2) + p) % vocab_size for i in range(3 + 3 * p)] for p in range(NUM_PROMPTS)]


def answers(llm: LLM, prompts: Sequence[list[int]], temperature: float) -> list[tuple[tuple[int, ...], str]]:
    found = llm.generate(list(prompts), replace(PARAMS, temperature=temperature, seed=1))
    return [(tuple(answer.token_ids), str(answer.logits_sha256)) for answer in found]


def bits(llm: LLM, temperature: float = 0) -> Bits:
    """Alone first: these leave the pages that the batch finds."""
    prompts = prompts_for(llm.runner.vocab_size)
    alone = [answers(llm, [prompt], temperature)[0] for prompt in prompts]
    before = llm.engine.scheduler.num_cached_tokens
    together = answers(llm, prompts, temperature)
    return Bits(alone, together, llm.engine.scheduler.num_cached_tokens - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--backend", default="webgpu")
    parser.add_argument("--against", default="cpu", help="reference takes minutes; cpu has its bits")
    asked = parser.parse_args()
    made = {
        name: bits(LLM(asked.model, backend=name, context_len=256, sampling_defaults="neutral"))
        for name in (asked.backend, asked.against)
    }
    table = Table(title=f"{asked.model}: SHA-256 of the logits, {made[asked.backend].num_shared} prompt tokens shared")
    for column in ("prompt", *(f"{name}, {how}" for name in made for how in ("alone", "together"))):
        table.add_column(column)
    for number in range(NUM_PROMPTS):
        hashes = [row[number][1][:12] for found in made.values() for row in (found.alone, found.together)]
        table.add_row(str(number), *hashes)
    Console().print(table)
    wanted = made[asked.against].alone
    is_same = all(row == wanted for found in made.values() for row in (found.alone, found.together))
    print("all the same" if is_same else "THEY DIFFER")
    sys.exit(not is_same)


if __name__ == "__main__":
    main()
