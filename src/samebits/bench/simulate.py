"""The real scheduler and page cache under a virtual clock: what a policy does to waiting, without a model.

A step takes as long as a cost model says: hours of traffic take seconds, and all policies see the same requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from samebits.bench.workload import Arrival, prompts_of
from samebits.cache import PageCache
from samebits.core.errors import BadInput
from samebits.scheduler import Policy, Request, Scheduler, StepPlan
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
        num_pairs = int(plan.positions.sum(dtype=np.int64)) + plan.num_tokens
        tokens_ms = self.decode_ms * num_apart + self.prefill_ms * (plan.num_tokens - num_apart)
        return (self.base_ms + tokens_ms + self.pair_ms * num_pairs) / 1000


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


@dataclass(eq=False)
class Outcome:
    """What one policy did. Times are virtual seconds; a gap is that between two tokens of one sequence."""

    name: str
    started_at: float  # the first arrival
    gap_ends: list[float] = field(default_factory=list)  # seconds since then
    gaps: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)  # seconds from arrival
    seconds: float = 0.0  # until the last token
    num_prompt_tokens: int = 0
    num_new_tokens: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int = 0  # not computed again, on admission or after a preemption
    num_pages: int = 0
    peak_pages: int = 0
    page_seconds: float = 0.0

    def gap_ms(self, share: float) -> float:
        """The gap that this share of gaps does not exceed; 1 is the worst."""
        return _quantile_ms(self._sorted_gaps, share)

    def first_token_ms(self, share: float) -> float:
        return _quantile_ms(np.sort(self.first_tokens), share)

    @property
    def tokens_per_second(self) -> float:
        return self.num_new_tokens / self.seconds

    @property
    def mean_pages(self) -> float:
        return self.page_seconds / self.seconds

    @cached_property
    def _sorted_gaps(self) -> np.ndarray:
        return np.sort(self.gaps)


def _quantile_ms(ascending: np.ndarray, share: float) -> float:
    if not len(ascending):
        return 0.0
    return 1000 * float(ascending[max(0, int(np.ceil(share * len(ascending))) - 1)])


@dataclass(eq=False)
class _Answer:
    arrival: Arrival
    num_tokens: int = 0
    last_at: float = 0.0


def simulate(name: str, policy: Policy, arrivals: Sequence[Arrival], room: Room, cost: Cost) -> Outcome:
    """All requests from the first arrival to the last token. BadInput for one that the room could never hold."""
    pages = room.cache()
    for arrival in arrivals:
        if arrival.prompt_tokens + arrival.new_tokens > pages.max_len:
            given = f"a prompt of {arrival.prompt_tokens} tokens and {arrival.new_tokens} new ones"
            raise BadInput("bench", "request", given, f"{pages.max_len} at most: more --context, or more --pages")
    scheduler, answers = Scheduler(pages, policy), dict[Sample, _Answer]()
    coming, prompts = deque(arrivals), prompts_of(arrivals)
    clock = arrivals[0].at_seconds
    outcome = Outcome(name, clock, num_pages=pages.pool.num_pages - 1)
    while coming or answers:
        while coming and coming[0].at_seconds <= clock:
            arrival = coming.popleft()
            answers[scheduler.add(Request(next(prompts)))[0]] = _Answer(arrival)
            outcome.num_prompt_tokens += arrival.prompt_tokens
        plan = scheduler.plan()
        if plan is None:
            clock = coming[0].at_seconds
            continue
        step_seconds = cost.seconds(plan)
        clock += step_seconds
        outcome.num_steps += 1
        outcome.peak_pages = max(outcome.peak_pages, pages.num_used)
        outcome.page_seconds += step_seconds * pages.num_used
        scheduler.commit(plan, np.zeros(len(plan.sampled), np.int32))
        for sample in plan.sampled:
            if _take_token(outcome, answers[sample], clock):
                scheduler.finish(sample)
                del answers[sample]
    outcome.seconds = clock - outcome.started_at
    outcome.num_preemptions, outcome.num_cached_tokens = scheduler.num_preemptions, scheduler.num_cached_tokens
    return outcome


def _take_token(outcome: Outcome, answer: _Answer, now: float) -> bool:
    """Notes one token; True where it is the answer's last."""
    if answer.num_tokens:
        outcome.gaps.append(now - answer.last_at)
        outcome.gap_ends.append(now - outcome.started_at)
    else:
        outcome.first_tokens.append(now - answer.arrival.at_seconds)
    answer.num_tokens, answer.last_at = answer.num_tokens + 1, now
    outcome.num_new_tokens += 1
    return answer.num_tokens == answer.arrival.new_tokens
