"""What guessing is worth, on and off in turn in one run: `python benchmarks/speculation.py --scene repeat free known`.

repeat  a prompt that asks for a text of 200 tokens again, with changes, and prompt lookup
free    a story, and prompt lookup: what it costs where it finds little
known   a drafter that knows the answer and is right with a chance that is given: for random models, on any backend
looping a model's own answer put before it as a part of its prompt, and prompt lookup
pair    the model guesses for one that is --deeper times as deep, whose further layers are nearly the identity

With --shape the model has random weights and the tokenizer of --model, which must have as many tokens:
  python benchmarks/speculation.py --shape llama-7.4b --format q4_0 --numerics portable --backend cuda --scene known
Both sides must give the same tokens; ratios are medians over rounds of the decode's tokens per second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits import LLM, SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.bench.shapes import SHAPES
from samebits.core.format import HostTensor
from samebits.core.shapes import TensorSpec
from samebits.engine.drafts.choice import make_drafter
from samebits.engine.drafts.drafter import Drafter, Wanted
from samebits.engine.drafts.pace import pace_of
from samebits.engine.drafts.speculation import Speculation
from samebits.engine.engine import Engine
from samebits.engine.runner import Runner
from samebits.formats import Q8_0
from samebits.loaders import Tokenizer
from samebits.loaders.obtain import obtain
from samebits.models.architecture import Architecture
from samebits.models.checkpoint import Checkpoint, FileCheckpoint, open_checkpoint
from samebits.models.parts import Limits
from samebits.models.parts.decoder import Decoder
from samebits.scheduler import Policy

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


@dataclass(frozen=True)
class Model:
    """A model under test, and its chat template if it has one."""

    engine: Engine
    tokenizer: Tokenizer
    chat: Callable[[str], list[int]] | None = None

    @property
    def runner(self) -> Runner:
        return self.engine.runner


@dataclass(frozen=True)
class Deeper:
    """A checkpoint with its layers several times over; what the further ones add is small and random."""

    file: FileCheckpoint
    times: int
    size: float

    @property
    def architecture(self) -> Architecture:
        return self.file.architecture

    @property
    def config(self) -> Decoder:
        ours = self.file.config
        return replace(ours, num_layers=ours.num_layers * self.times, layers=ours.layers * self.times)

    def _source(self, name: str) -> tuple[str, bool]:
        """The file's tensor of that name, and whether it is what a further layer adds."""
        parts, count = name.split("."), self.file.config.num_layers
        if parts[0] != "layers" or int(parts[1]) < count:
            return name, False
        is_added = parts[-2:] in (["attn", "o"], ["ffn", "down"])
        return ".".join(["layers", str(int(parts[1]) % count), *parts[2:]]), is_added

    def spec(self, name: str) -> TensorSpec | None:
        source, is_added = self._source(name)
        spec = self.file.spec(source)
        return TensorSpec(spec.shape, "q8_0") if spec and is_added else spec

    def tensor(self, name: str) -> HostTensor:
        source, is_added = self._source(name)
        spec = self.file.spec(source)
        if spec is None or not is_added:
            return self.file.tensor(source)
        values = np.random.default_rng(1).normal(0, self.size, spec.shape)
        return Q8_0.pack(values.astype(np.float32))

    def release(self, name: str) -> None:
        """The same pages of the file are read again."""


def timed(model: Model, drafter: Drafter | None, prompt: list[int], params: SamplingParams) -> dict[str, Any]:
    """An answer's tokens, decoded tokens per second, and what was guessed."""
    engine = model.engine
    pace = pace_of(model.runner.backend.name)
    engine.speculation = Speculation(drafter, model.runner.vocab_size, pace) if drafter else None
    job = engine.generate(prompt, params)
    while job.first_token_at is None:
        engine.step()
    started, before = time.perf_counter(), len(job.answers[0].pieces)
    engine.complete(job)
    tokens = job.completions()[0].token_ids
    rate = (len(tokens) - before) / (time.perf_counter() - started)
    guessed = engine.speculation
    counts = (guessed.num_drafted, guessed.num_taken) if guessed else (0, 0)
    return {"tokens": tokens, "rate": rate, "drafted": counts[0], "taken": counts[1]}


def open_model(given: argparse.Namespace, is_deeper: bool) -> Model:
    """--model as it is, several times as deep, or random weights of a shape with its tokenizer."""
    options: dict[str, Any] = {"backend": given.backend, "threads": given.threads, "numerics": given.numerics}
    if given.shape is None and not is_deeper:
        llm = LLM(given.model, context_len=2048, max_sequences=8, sampling_defaults="neutral", **options)
        return Model(llm.engine, llm.tokenizer, llm.chat_prompt if llm.chat_template else None)
    file = open_checkpoint(obtain(given.model))
    checkpoint: Checkpoint = Deeper(file, given.deeper, given.size)
    if given.shape is not None:
        checkpoint = RandomCheckpoint(SHAPES[given.shape], given.format)
    found = get(given.backend or default_name())
    policy = Policy(draft_batch_tokens=pace_of(found.name).batch_tokens)
    limits = Limits(policy.max_step_tokens(8), 8, 8 * 2048 // 16, max_positions=2048)
    runner = Runner(checkpoint, found, limits, given.numerics, threads=given.threads)
    return Model(Engine(runner, file.tokenizer(), policy), file.tokenizer())


def prompt_of(model: Model, scene: str, params: SamplingParams) -> list[int]:
    if scene == "free" and model.chat is not None:
        return model.chat(PROMPTS[scene])
    if scene in PROMPTS:
        return model.tokenizer.encode(PROMPTS[scene])
    start = model.tokenizer.encode(TEXT)[:32]
    if scene == "looping":
        return [*start, *timed(model, None, start, params)["tokens"], *start]
    return start


def measure(model: Model, scene: str, given: argparse.Namespace) -> dict[str, Any]:
    params = SamplingParams(
        max_tokens=given.tokens, temperature=given.temperature, seed=1, ignore_eos=scene not in PROMPTS
    )
    prompt = prompt_of(model, scene, params)
    plain = timed(model, None, prompt, params)  # warm, and what a drafter may know
    name = f"draft:{given.model}" if scene == "pair" else "ngram"
    drafter = None if scene == "known" else make_drafter(name, model.runner, model.tokenizer)
    rates: dict[str, list[float]] = {"off": [], "on": []}
    on = plain
    for _ in range(given.rounds):
        rates["off"].append(timed(model, None, prompt, params)["rate"])
        text = [*prompt, *plain["tokens"]]
        on = timed(model, drafter or Knowing(text, given.chance, model.runner.vocab_size), prompt, params)
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
    parser.add_argument("--shape", choices=sorted(SHAPES), help="random weights of this shape")
    parser.add_argument("--format", default="q4_0", help="of the random weights")
    parser.add_argument("--deeper", type=int, default=4, help="how many times as deep, in the scene pair")
    parser.add_argument("--size", type=float, default=1e-3, help="of what further layers add, in the scene pair")
    parser.add_argument("--chance", type=float, default=0.9, help="that a guess is right, in the scene known")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    plain = [scene for scene in given.scene if scene != "pair"]
    model = open_model(given, is_deeper=False) if plain else None
    found = [measure(model, scene, given) for scene in plain if model is not None]
    if "pair" in given.scene:
        found.append(measure(open_model(given, is_deeper=True), "pair", given))
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
