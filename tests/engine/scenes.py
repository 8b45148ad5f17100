"""Scenes for the promise: some watched requests of every kind among others, on engines of every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tiny_hybrid import HybridCheckpoint

from samebits.backends.discovery import Found
from samebits.cache import PageCache
from samebits.engine.drafts.pace import Pace
from samebits.engine.drafts.speculation import Speculation
from samebits.engine.engine import Engine
from samebits.engine.job import Generation, Job
from samebits.engine.request_options import RequestOptions
from samebits.engine.runner import Runner
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_jobs import POOLINGS, Embedding, Scoring, TextJob
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts import Limits
from samebits.scheduler import Policy, Scheduler

EAGER = Pace(tuple(1 + 0.03 * count for count in range(16)), batch_tokens=64)  # bad guesses are tried for long
PARAMS = {
    "greedy": SamplingParams(max_tokens=12, temperature=0, seed=0, hash_logits=True, ignore_eos=True),
    "two samples": SamplingParams(
        max_tokens=10, temperature=0.9, top_p=0.9, n=2, seed=7, logprobs=20, hash_logits=True, ignore_eos=True
    ),
    "seven samples": SamplingParams(max_tokens=4, n=7, seed=8, hash_logits=True, ignore_eos=True),
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
TEXTS = ("score", *POOLINGS)  # jobs on every token
WATCHED = (*PARAMS, *TEXTS)
LENGTHS = {"greedy": 40, "two samples": 71, "seven samples": 45, "shaped": 33, "score": 78, "mean": 66, "last": 54}
PREFIX = [int(t) for t in np.random.default_rng(0).integers(3, 250, 32)]


def prompt_of(name: str, vocab_size: int) -> list[int]:
    """A fixed prompt; all start the same, so that they can share pages."""
    rng = np.random.default_rng(len(name))
    rest = rng.integers(3, vocab_size, LENGTHS[name] - len(PREFIX)).tolist()
    return [*PREFIX, *map(int, rest)]


def start(engine: Engine, name: str, **options: Any) -> Job:
    """A watched request."""
    prompt = prompt_of(name, engine.runner.vocab_size)
    if name == "score":
        return engine.score(prompt, top_k=3, **options)
    if name in POOLINGS:
        return engine.embed(prompt, name, **options)
    return engine.generate(prompt, PARAMS[name], RequestOptions(**options))


def outcome(job: Job) -> Any:
    """All that a job gives, in a form that == compares bit by bit; RequestFailed where it failed."""
    if isinstance(job, Generation):
        return job.completions()
    if isinstance(job, Scoring):
        return job.score()
    assert isinstance(job, Embedding)
    return job.vector().tobytes()


@dataclass
class Scene:
    """Who else is there, and when all come. Everything random comes from `seed`; the engine's clock counts steps.

    num_preemptions  of all sequences
    num_cut_texts    preemptions of watched scores and embeddings that had some of their rows
    """

    num_others: int = 0
    seed: int = 0
    arrivals_a_step: float = 4.0
    cancelled_share: float = 0.0
    other_lengths: tuple[int, int] = (1, 60)
    priorities: tuple[int, ...] = (-2, -1, 0, 1)
    watched: tuple[str, ...] = WATCHED
    copies: int = 1  # of each watched request
    num_preemptions: int = field(default=0, init=False)
    num_cut_texts: int = field(default=0, init=False)

    def play(self, engine: Engine) -> dict[str, Any]:
        """What the watched requests give; integrity is checked after every step."""
        rng = np.random.default_rng(self.seed)
        work: list[Any] = [*self.watched] * self.copies + [None] * self.num_others
        rng.shuffle(work)
        watched: dict[str, list[Job]] = {name: [] for name in self.watched}
        others: list[Job] = []
        num_steps = 0
        engine.clock = lambda: float(num_steps)
        while work or not engine.is_idle:
            for _ in range(min(len(work), int(rng.poisson(self.arrivals_a_step)))):
                name = work.pop()
                if name:
                    watched[name].append(start(engine, name))
                else:
                    others.append(self._other(engine, rng))
            if others and rng.random() < self.cancelled_share:
                engine.cancel(others[int(rng.integers(len(others)))])
            self._step(engine, [job for jobs in watched.values() for job in jobs])
            num_steps += 1
        self.num_preemptions = engine.scheduler.num_preemptions
        outcomes = {name: [outcome(job) for job in jobs] for name, jobs in watched.items()}
        assert all(one == of_name[0] for of_name in outcomes.values() for one in of_name), "copies that differ"
        return {name: of_name[0] for name, of_name in outcomes.items()}

    def _step(self, engine: Engine, jobs: list[Job]) -> None:
        texts = [j.sequences[0] for j in jobs if isinstance(j, TextJob) and j.num_taken and not j.is_done]
        before = sum(sequence.num_preemptions for sequence in texts)
        engine.step()
        engine.scheduler.check_integrity()
        self.num_cut_texts += sum(sequence.num_preemptions for sequence in texts) - before

    def _other(self, engine: Engine, rng: np.random.Generator) -> Job:
        length = int(rng.integers(*self.other_lengths))
        prompt = rng.integers(3, engine.runner.vocab_size, length).tolist()
        prompt[: len(PREFIX)] = PREFIX[:length] if rng.random() < 0.5 else prompt[: len(PREFIX)]
        kind = str(rng.choice(["generate", "generate", "generate", *TEXTS]))
        if kind == "score":
            return engine.score(prompt)
        if kind in POOLINGS:
            return engine.embed(prompt, kind)
        params = SamplingParams(
            max_tokens=int(rng.integers(1, 16)),
            temperature=float(rng.choice([0.0, 1.0])),
            n=int(rng.choice([1, 1, 1, 2, 5])),
            seed=int(rng.integers(1 << 30)),
            ignore_eos=True,
        )
        deadline = engine.clock() + float(rng.integers(1, 40)) if rng.random() < 0.3 else None
        return engine.generate(
            prompt, params, RequestOptions(priority=int(rng.choice(self.priorities)), deadline=deadline)
        )


def alone(engine_of: Any) -> dict[str, Any]:
    """Each watched request on a fresh engine of its own."""
    answers: dict[str, Any] = {}
    for name in WATCHED:
        answers |= Scene(watched=(name,)).play(engine_of())
    return answers


LIMITS = Limits(max_tokens=2200, max_sequences=64, num_pages=600, max_positions=400)


class Lab:
    """A tiny random model on a backend, engines over it of any kind, and what the watched answers must be."""

    def __init__(self, model: Path | HybridCheckpoint, found: Found, limits: Limits = LIMITS) -> None:
        checkpoint = open_checkpoint(model) if isinstance(model, Path) else model
        self.tokenizer = checkpoint.tokenizer()
        self.runner = Runner(checkpoint, found, limits)
        self.alone = alone(self.engine)

    def engine(self, num_pages: int | None = None, num_snapshots: int | None = None, **options: Any) -> Engine:
        """A fresh engine; fewer pages, or snapshots, than there are make a pool tight."""
        policy, drafter = options.pop("policy", Policy()), options.pop("drafter", None)
        engine = Engine(self.runner, self.tokenizer, policy, drafter=drafter, **options)
        if drafter is not None:  # bolder than is worth its time here
            engine.speculation = Speculation(drafter, self.runner.vocab_size, EAGER)
        if num_pages or num_snapshots is not None:
            limits = self.runner.limits
            if self.runner.has_slots and num_snapshots is None:
                num_snapshots = limits.num_snapshots
            sizes = num_pages or limits.num_pages, limits.page_size, limits.max_sequences, limits.max_positions
            pages = PageCache(*sizes, num_snapshots=num_snapshots)
            engine.scheduler = Scheduler(pages, engine.scheduler.policy, **options)
        return engine
