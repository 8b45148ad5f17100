"""A model under load in real time: requests come as a workload says, and every token's time is noted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from samebits.bench.ours import Settings
from samebits.bench.outcome import Outcome, Track
from samebits.bench.results import Row
from samebits.bench.workload import Arrival, prompts_of
from samebits.core.errors import BadInput
from samebits.engine.engine import Engine
from samebits.engine.job import Generation
from samebits.engine.runner import Runner
from samebits.engine.sampling import SamplingParams
from samebits.models.parts import Limits
from samebits.scheduler import Policy

PAGE_SIZE = 16
CONTEXTS = 8  # room where none is stated


class Serving:
    """One loaded model and an engine for each policy. Also a `Side`, whose rows are prompts that come together."""

    name = "samebits"
    settings = ("",)

    def __init__(
        self, settings: Settings, policies: Mapping[str, Policy], max_sequences: int, context: int, pages: int | None
    ) -> None:
        self.checkpoint, self.found = settings.open(), settings.device()
        longest = min(context, self.checkpoint.config.context_len)
        limits = Limits(
            max_tokens=max(p.max_step_tokens(max_sequences) for p in policies.values()),
            max_sequences=max_sequences,
            num_pages=pages or 1 + CONTEXTS * -(-longest // PAGE_SIZE),
            page_size=PAGE_SIZE,
            max_positions=longest,
        )
        self._runner = Runner(self.checkpoint, self.found, limits, settings.numerics, threads=settings.threads)
        self._tokenizer, self._policies = self.checkpoint.tokenizer(), policies
        self.line = (
            f"{settings.model} on {self.found.name}, numerics {self._runner.tier.label}, threads {settings.threads}; "
            f"room for {max_sequences} answers of at most {longest} tokens in {limits.num_pages} pages of {PAGE_SIZE}."
        )

    def play(self, policy: str, arrivals: Sequence[Arrival]) -> Outcome:
        """All requests from the first arrival to the last token, on a fresh engine."""
        engine = Engine(self._runner, self._tokenizer, self._policies[policy])
        pages = engine.scheduler.pages
        for arrival in arrivals:
            if arrival.prompt_tokens + arrival.new_tokens > pages.max_len:
                given = f"a prompt of {arrival.prompt_tokens} tokens and {arrival.new_tokens} new ones"
                raise BadInput("bench", "request", given, f"{pages.max_len} at most")
        prompts, coming = list(prompts_of(arrivals)), deque(enumerate(arrivals))
        tracks: dict[Generation, Track] = {}
        outcome = Outcome(policy, arrivals[0].at_seconds, num_pages=pages.pool.num_pages - 1)
        outcome.num_prompt_tokens = sum(a.prompt_tokens for a in arrivals)
        start = time.perf_counter() - outcome.started_at
        while coming or tracks:
            now = time.perf_counter() - start
            while coming and coming[0][1].at_seconds <= now:
                number, arrival = coming.popleft()
                tracks[self._ask(engine, prompts[number], arrival)] = Track(arrival)
            if not engine.step():
                time.sleep(max(0.0, coming[0][1].at_seconds - now))
                continue
            after = time.perf_counter() - start
            outcome.num_steps += 1
            outcome.peak_pages = max(outcome.peak_pages, pages.num_used)
            outcome.page_seconds += (after - now) * pages.num_used
            for job in [job for job in tracks if job.events]:
                job.check()
                job.events.clear()
                if outcome.take_token(tracks[job], after):
                    del tracks[job]
        outcome.seconds = time.perf_counter() - start - outcome.started_at
        scheduler = engine.scheduler
        outcome.num_preemptions, outcome.num_cached_tokens = scheduler.num_preemptions, scheduler.num_cached_tokens
        return outcome

    def seconds(self, row: Row, setting: str) -> float:
        """A row's prompts with the first policy."""
        arrivals = [Arrival(0.0, count, row.num_tokens) for count in row.prompt_lens]
        return self.play(next(iter(self._policies)), arrivals).seconds

    def _ask(self, engine: Engine, prompt: np.ndarray, arrival: Arrival) -> Generation:
        params = SamplingParams(max_tokens=arrival.new_tokens, temperature=0, seed=0, ignore_eos=True)
        return engine.generate(prompt % self._runner.vocab_size, params)


def serve_row(arrivals: Sequence[Arrival]) -> Row:
    """The same work as a row for peers; BadInput where they could not do it alike."""
    if len({(a.at_seconds, a.new_tokens) for a in arrivals}) > 1:
        raise BadInput("bench", "--against-llama.cpp", "requests that differ in time or answer", "--scenario together")
    return Row("serve", arrivals[0].new_tokens, len(arrivals), prompt_lens=tuple(a.prompt_tokens for a in arrivals))
