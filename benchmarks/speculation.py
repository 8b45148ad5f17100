"""What guessing is worth, on and off in turn in one run: `python benchmarks/speculation.py --scene repeat free known`.

repeat  a prompt that asks for a text of 200 tokens again, with changes, and prompt lookup
free    a story, and prompt lookup: what it costs where it finds little
known   a drafter that knows the answer and is right with a chance that is given: for random models, on any backend
pair    a smaller model guesses, --speculate draft:MODEL
looping a random model's own answer once more, put before it as its prompt, and prompt lookup

Both sides must give the same tokens; ratios are medians over rounds of the decode's tokens per second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits import LLM, SamplingParams
from samebits.engine.drafts.choice import make_drafter
from samebits.engine.drafts.drafter import Drafter, Wanted
from samebits.engine.drafts.pace import pace_of
from samebits.engine.drafts.speculation import Speculation

TEXT = (
    "The harbour of the old town lies between two hills. In the morning the boats come back with fish, and the market "
    "opens on the square before the church. Anna buys bread and two lemons, and walks along the wall to the house of "
    "her brother. He repairs clocks. On his table there are wheels, springs and small screws in glass bowls, and a "
    "lamp with a green shade. When the bell of the church rings, all the clocks in his room answer, one after another, "
    "and he writes down which of them were late. In the afternoon he walks to the harbour and looks at the water. The "
    "ferry to the island leaves at four and comes back at seven. Some people take their bicycles with them. The road "
    "around the island is nine kilometres long, and there is a cafe at the lighthouse where they serve soup and cake. "
    "In winter the ferry comes only once a day, and the cafe is closed from November until the first week of March."
)
PROMPTS = {
    "repeat": f'Original text:\n{TEXT}\n\nThe same text with every "Anna" replaced by "Maria":\n',
    "free": "Tell me a story about a lighthouse keeper and his dog.",
}


class Knowing:
    """Knows an answer; each guess is right with a chance that is given."""

    def __init__(self, text: Sequence[int], chance: float, vocab_size: int) -> None:
        self._text, self._chance, self._vocab_size = np.array(text, np.int32), chance, vocab_size
        self._rng = np.random.default_rng(0)

    def propose(self, wanted: Sequence[Wanted]) -> list[np.ndarray]:
        drafts = []
        for want in wanted:
            right = self._text[len(want.tokens) : len(want.tokens) + want.most]
            is_right = self._rng.random(len(right)) < self._chance
            drafts.append(np.where(is_right, right, (right + 1) % self._vocab_size))
        return drafts

    def forget(self, key: Hashable) -> None:
        pass


def timed(llm: LLM, drafter: Drafter | None, prompt: list[int], params: SamplingParams) -> dict[str, Any]:
    """An answer's tokens, decoded tokens per second, and what was guessed."""
    engine = llm.engine
    pace = pace_of(llm.runner.backend.name)
    engine.speculation = Speculation(drafter, llm.runner.vocab_size, pace) if drafter else None
    job = engine.generate(prompt, params)
    while job.first_token_at is None:
        engine.step()
    started, before = time.perf_counter(), len(job.answers[0].pieces)
    engine.complete(job)
    tokens = job.completions()[0].token_ids
    rate = (len(tokens) - before) / (time.perf_counter() - started)
    guessed = engine.speculation
    return {
        "tokens": tokens,
        "rate": rate,
        "drafted": guessed.num_drafted if guessed else 0,
        "taken": guessed.num_taken if guessed else 0,
    }


def open_model(given: argparse.Namespace) -> LLM:
    options: dict[str, Any] = {"backend": given.backend, "threads": given.threads, "numerics": given.numerics}
    return LLM(given.model, context_len=2048, max_sequences=8, **options)


def prompt_of(llm: LLM, scene: str, params: SamplingParams) -> list[int]:
    if scene == "free" and llm.chat_template is not None:
        return llm.chat_prompt(PROMPTS[scene])
    if scene in PROMPTS:
        return llm.encode(PROMPTS[scene])
    start = [3 + int(i * i) % 997 for i in range(32)]
    if scene == "looping":
        answer = timed(llm, None, start, params)["tokens"]
        return [*start, *answer, *start]
    return start


def measure(llm: LLM, scene: str, given: argparse.Namespace) -> dict[str, Any]:
    params = SamplingParams(
        max_tokens=given.tokens, temperature=given.temperature, seed=1, ignore_eos=scene not in PROMPTS
    )
    prompt = prompt_of(llm, scene, params)
    plain = timed(llm, None, prompt, params)  # warm, and what a drafter may know
    speculate = given.speculate if scene == "pair" else "ngram"
    smaller = None if scene == "known" else make_drafter(speculate, llm.runner, llm.tokenizer)
    rates: dict[str, list[float]] = {"off": [], "on": []}
    on = plain
    for _ in range(given.rounds):
        rates["off"].append(timed(llm, None, prompt, params)["rate"])
        text = [*prompt, *plain["tokens"]]
        drafter = smaller or Knowing(text, given.chance, llm.runner.vocab_size)
        on = timed(llm, drafter, prompt, params)
        if on["tokens"] != plain["tokens"]:
            raise SystemExit(f"{scene}: guesses changed the answer")
        rates["on"].append(on["rate"])
    ratios = [on_rate / off_rate for on_rate, off_rate in zip(rates["on"], rates["off"], strict=True)]
    return {
        "scene": scene,
        "answer_tokens": len(plain["tokens"]),
        "off": statistics.median(rates["off"]),
        "on": statistics.median(rates["on"]),
        "ratio": statistics.median(ratios),
        "drafted": on["drafted"],
        "accepted": on["taken"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="a name or a path; benchmarks/random_model.py makes others")
    parser.add_argument("--backend")
    parser.add_argument("--numerics")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--scene", nargs="+", default=["repeat", "free"])
    parser.add_argument("--speculate", default="ngram", help="the drafter of the scene pair")
    parser.add_argument("--chance", type=float, default=0.9, help="that a guess is right, in the scene known")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    llm = open_model(given)
    found = [measure(llm, scene, given) for scene in given.scene]
    table = Table("scene", "tokens", "off, tokens/s", "on, tokens/s", "ratio", "guessed", "right")
    for row in found:
        share = row["accepted"] / row["drafted"] if row["drafted"] else 0
        rates = (f"{row['off']:.1f}", f"{row['on']:.1f}", f"{row['ratio']:.2f}")
        table.add_row(row["scene"], str(row["answer_tokens"]), *rates, str(row["drafted"]), f"{share:.0%}")
    Console().print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
