"""Scenes for the promise: some watched requests among others, on engines of every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from samebits.backends.discovery import Found
from samebits.cache import PageCache
from samebits.engine.answer import Completion
from samebits.engine.engine import Engine
from samebits.engine.job import Generation
from samebits.engine.runner import Runner
from samebits.engine.sampling import SamplingParams
from samebits.loaders import open_checkpoint
from samebits.models.parts import Limits
from samebits.scheduler import Policy, Scheduler

PARAMS = {
    "greedy": SamplingParams(max_tokens=12, temperature=0, seed=0, hash_logits=True, ignore_eos=True),
    "two samples": SamplingParams(
        max_tokens=10, temperature=0.9, top_p=0.9, n=2, seed=7, hash_logits=True, ignore_eos=True
    ),
    "shaped": SamplingParams(
        max_tokens=9,
        temperature=0.8,
        top_k=40,
        seed=9,
        logit_bias={5: 2.0},
        repetition_penalty=1.1,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        logprobs=2,
        hash_logits=True,
        ignore_eos=True,
    ),
}
LENGTHS = {"greedy": 40, "two samples": 71, "shaped": 33}
PREFIX = [int(t) for t in np.random.default_rng(0).integers(3, 250, 32)]


def prompt_of(name: str, vocab_size: int) -> list[int]:
    """A fixed prompt; all start the same, so that they can share pages."""
    rng = np.random.default_rng(len(name))
    rest = rng.integers(3, vocab_size, LENGTHS[name] - len(PREFIX)).tolist()
    return [*PREFIX, *map(int, rest)]


@dataclass
class Scene:
    """Who else is there, and when all come. Everything random comes from `seed`."""

    num_others: int = 0
    seed: int = 0
    arrivals_a_step: float = 4.0
    cancelled_share: float = 0.0
    other_lengths: tuple[int, int] = (1, 60)
    watched: tuple[str, ...] = tuple(PARAMS)
    num_preemptions: int = field(default=0, init=False)

    def play(self, engine: Engine) -> dict[str, list[Completion]]:
        """The watched requests' answers; integrity is checked after every step."""
        rng = np.random.default_rng(self.seed)
        vocab_size = engine.runner.vocab_size
        work: list[Any] = [*self.watched, *(None for _ in range(self.num_others))]
        rng.shuffle(work)
        watched: dict[str, Generation] = {}
        others: list[Generation] = []
        while work or not engine.is_idle:
            for _ in range(min(len(work), int(rng.poisson(self.arrivals_a_step)))):
                name = work.pop()
                if name:
                    watched[name] = engine.generate(prompt_of(name, vocab_size), PARAMS[name])
                else:
                    others.append(self._other(engine, rng, vocab_size))
            if others and rng.random() < self.cancelled_share:
                engine.cancel(others[int(rng.integers(len(others)))])
            engine.step()
            engine.scheduler.check_integrity()
        self.num_preemptions = engine.scheduler.num_preemptions
        return {name: watched[name].completions() for name in self.watched}

    def _other(self, engine: Engine, rng: np.random.Generator, vocab_size: int) -> Generation:
        length = int(rng.integers(*self.other_lengths))
        prompt = rng.integers(3, vocab_size, length).tolist()
        prompt[: len(PREFIX)] = PREFIX[:length] if rng.random() < 0.5 else prompt[: len(PREFIX)]
        params = SamplingParams(
            max_tokens=int(rng.integers(1, 16)),
            temperature=float(rng.choice([0.0, 1.0])),
            n=int(rng.choice([1, 1, 1, 2])),
            seed=int(rng.integers(1 << 30)),
            ignore_eos=True,
        )
        return engine.generate(prompt, params)


def alone(engine_of: Any) -> dict[str, list[Completion]]:
    """Each watched request on a fresh engine of its own."""
    answers: dict[str, list[Completion]] = {}
    for name in PARAMS:
        answers |= Scene(watched=(name,)).play(engine_of())
    return answers


LIMITS = Limits(max_tokens=2200, max_sequences=64, num_pages=600, max_positions=400)


class Lab:
    """A tiny random model on a backend, engines over it of any kind, and what the watched answers must be."""

    def __init__(self, path: Path, found: Found, limits: Limits = LIMITS) -> None:
        checkpoint = open_checkpoint(path)
        self.tokenizer = checkpoint.tokenizer()
        self.runner = Runner(checkpoint, found, limits)
        self.alone = alone(self.engine)

    def engine(self, num_pages: int | None = None, **options: Any) -> Engine:
        """A fresh engine; fewer pages than there are make the pool tight."""
        engine = Engine(self.runner, self.tokenizer, options.pop("policy", Policy()), **options)
        if num_pages:
            limits = self.runner.limits
            pages = PageCache(num_pages, limits.page_size, limits.max_sequences, limits.max_positions)
            engine.scheduler = Scheduler(pages, engine.scheduler.policy, **options)
        return engine
