"""The real scheduler and page cache under a virtual clock: what a policy does to waiting, without a model.

A step takes as long as a cost model says: hours of traffic take seconds, and all policies see the same requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samebits.bench.guessing import Guessing
from samebits.bench.outcome import Outcome, Track
from samebits.bench.workload import Arrival, prompts_of
from samebits.cache import PageCache
from samebits.core.errors import BadInput
from samebits.scheduler import Policy, PromptRequest, Scheduler, StepPlan
from samebits.scheduler import Sequence as Sample

MAX_MS = 1e6
MAX_TABLE = 1 << 27  # tokens that running sequences may have together
DECODES_APART = 32  # from here on a step's decodes share their weights' reads and cost what prompt tokens do


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a step: `base`, then for each decode, each prompt token, each (query, position) pair.

    The defaults resemble SmolLM2 on two cores.
    """

    base_ms: float = 3.0
    decode_ms: float = 0.8
    prefill_ms: float = 0.75
    pair_ms: float = 0.0002

    def seconds(self, plan: StepPlan) -> float:
        num_apart = min(plan.num_decodes, DECODES_APART)
        num_pairs = int(plan.batch.positions.sum(dtype=np.int64)) + plan.num_tokens
        tokens_ms = self.decode_ms * num_apart + self.prefill_ms * (plan.num_tokens - num_apart)
        return (self.base_ms + tokens_ms + self.pair_ms * num_pairs) / 1000

    def decode_ends(self, num_decodes: int, num_computed: int, count: int) -> np.ndarray:
        """Seconds until the end of each of so many steps of the same decodes, which have computed tokens in all."""
        num_apart = min(num_decodes, DECODES_APART)
        step_ms = self.base_ms + self.decode_ms * num_apart + self.prefill_ms * (num_decodes - num_apart)
        num_pairs = num_computed + num_decodes * np.arange(1, count + 1)
        return np.cumsum(step_ms + self.pair_ms * num_pairs) / 1000


def cost_of(text: str) -> Cost:
    """ "3,0.8,0.75,0.2": the four in Cost's order, the last in microseconds."""
    try:
        base, decode, prefill, pair_us = map(float, text.split(","))
        if all(0 <= value <= MAX_MS for value in (base, decode, prefill, pair_us)) and base > 0:
            return Cost(base, decode, prefill, pair_us / 1000)
    except ValueError:
        pass  # refused below, like a number out of range
    raise BadInput("bench", "--cost", repr(text[:80]), f"four numbers from 0 to {MAX_MS}, the first above 0")


def policy_of(text: str) -> Policy:
    """A policy by its budget: "dynamic", "off" or a number of tokens."""
    return Policy(prefill_budget=int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text)


@dataclass(frozen=True)
class Room:
    """The engine's sizes. Absent, `num_pages` is what eight sequences of the longest kind take."""

    max_sequences: int = 64
    max_len: int = 8192
    page_size: int = 16
    num_pages: int | None = None

    def cache(self) -> PageCache:
        if self.max_sequences * self.max_len > MAX_TABLE:
            given = f"{self.max_sequences} sequences of {self.max_len} tokens"
            raise BadInput("bench", "room", given, f"{MAX_TABLE} tokens at most")
        pages = self.num_pages or 1 + 8 * -(-self.max_len // self.page_size)
        return PageCache(pages, self.page_size, self.max_sequences, self.max_len)


def simulate(
    name: str, policy: Policy, arrivals: Sequence[Arrival], room: Room, cost: Cost, guessing: Guessing | None = None
) -> Outcome:
    """All requests from the first arrival to the last token. BadInput for one that the room could never hold.

    guessing   makes up drafts, where tokens are guessed
    """
    pages = room.cache()
    for arrival in arrivals:
        if arrival.prompt_tokens + arrival.new_tokens > pages.max_len:
            given = f"a prompt of {arrival.prompt_tokens} tokens and {arrival.new_tokens} new ones"
            raise BadInput("bench", "request", given, f"{pages.max_len} at most: more --context, or more --pages")
    scheduler, answers = Scheduler(pages, policy), dict[Sample, Track]()
    coming, prompts = deque(arrivals), prompts_of(arrivals)
    clock = arrivals[0].at_seconds
    outcome = Outcome(name, clock, num_pages=pages.pool.num_pages - 1)
    while coming or answers:
        while coming and coming[0].at_seconds <= clock:
            arrival = coming.popleft()
            answers[scheduler.add(PromptRequest(next(prompts)))[0]] = Track(arrival)
            outcome.num_prompt_tokens += arrival.prompt_tokens
        plan = scheduler.plan(guessing.propose if guessing else None)
        if plan is None:
            clock = coming[0].at_seconds
            continue
        step_seconds = cost.seconds(plan)
        clock += step_seconds
        outcome.num_steps += 1
        outcome.peak_pages = max(outcome.peak_pages, pages.num_used)
        outcome.page_seconds += step_seconds * pages.num_used
        counts = guessing.counts(plan) if guessing else np.ones(len(plan.sampled), np.int32)
        scheduler.commit(plan, np.zeros(int(counts.sum()), np.int32), counts)
        for sample, count in zip(plan.sampled, counts.tolist(), strict=True):
            if any(outcome.take_token(answers[sample], clock) for _ in range(count)):
                scheduler.finish(sample)
                del answers[sample]
                if guessing:
                    guessing.forget(sample)
    if guessing:
        outcome.num_drafted, outcome.num_taken = guessing.num_drafted, guessing.num_taken
    outcome.seconds = clock - outcome.started_at
    outcome.num_preemptions, outcome.num_cached_tokens = scheduler.num_preemptions, scheduler.num_cached_tokens
    return outcome
