"""All requests against all replicas, in the order of virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np

from samebits.bench.fleet.prefix_index import PrefixIndex
from samebits.bench.fleet.replica import Answer, Replica
from samebits.bench.fleet.routing import routing_of
from samebits.bench.outcome import quantile_ms
from samebits.bench.simulate import Cost, Room
from samebits.bench.workload import Arrival, prompts_of
from samebits.scheduler import Policy

WARM_PART = 4


@dataclass(frozen=True, eq=False)
class FleetOutcome:
    """What became of the requests. Times are virtual.

    Hits and waits are those of requests that came after the first quarter of them, which fills the caches.
    """

    routing: str
    num_replicas: int
    num_groups: int
    num_requests: int
    hit_rate: float  # prompt tokens that were found in the cache
    num_new_tokens: int
    num_preemptions: int
    seconds: float  # from the first arrival to the last token
    busy_share: float  # of the replicas' time
    busiest: float  # requests of the replica that got most, as a multiple of the mean
    first_tokens: np.ndarray  # seconds from arrival, ascending
    latencies: np.ndarray  # seconds from arrival to the last token, ascending
    num_lookups: int
    num_probes: int  # digests looked up
    num_events: int  # pages that were stored or removed
    peak_entries: int  # (page, replica) pairs that the router knew at once

    @property
    def tokens_per_second(self) -> float:
        return self.num_new_tokens / self.seconds

    def first_token_ms(self, share: float) -> float:
        return quantile_ms(self.first_tokens, share)

    def latency_ms(self, share: float) -> float:
        return quantile_ms(self.latencies, share)


def play(
    routing: str, num_replicas: int, arrivals: Sequence[Arrival], room: Room, policy: Policy, cost: Cost, seed: int
) -> FleetOutcome:
    """Every request goes where the router sends it at its arrival, and is answered there."""
    replicas = [Replica(room, policy, cost) for _ in range(num_replicas)]
    router = routing_of(routing)(replicas, room.page_size, seed)
    queue: list[tuple[float, int]] = []  # (due, replica); those whose replica is due at another time are outdated
    answers: list[Answer] = []

    def go_on_until(time: float) -> None:
        while queue and queue[0][0] < time:  # what comes at the same time comes first
            due, number = heappop(queue)
            replica = replicas[number]
            if replica.due != due:
                continue
            answers.extend(replica.go_on())
            if replica.due < inf:
                heappush(queue, (replica.due, number))

    for arrival, prompt in zip(arrivals, prompts_of(arrivals), strict=True):
        go_on_until(arrival.at_seconds)
        number = router.choose(prompt)
        due_before = replicas[number].due
        replicas[number].add(arrival, prompt)
        if replicas[number].due != due_before:
            heappush(queue, (replicas[number].due, number))
    go_on_until(inf)
    return _outcome(routing, replicas, arrivals, answers, router.index)


def _outcome(
    routing: str,
    replicas: Sequence[Replica],
    arrivals: Sequence[Arrival],
    answers: Sequence[Answer],
    index: PrefixIndex | None,
) -> FleetOutcome:
    seconds = max(a.ended_at for a in answers) - arrivals[0].at_seconds
    warm_at = arrivals[len(arrivals) // WARM_PART].at_seconds
    counted = [a for a in answers if a.arrival.at_seconds >= warm_at]
    return FleetOutcome(
        routing=routing,
        num_replicas=len(replicas),
        num_groups=len({a.prefix_group for a in arrivals}),
        num_requests=len(answers),
        hit_rate=sum(a.num_cached_tokens for a in counted) / sum(a.arrival.prompt_tokens for a in counted),
        num_new_tokens=sum(a.num_tokens for a in answers),
        num_preemptions=sum(r.scheduler.num_preemptions for r in replicas),
        seconds=seconds,
        busy_share=sum(r.busy_seconds for r in replicas) / (seconds * len(replicas)),
        busiest=max(r.num_requests for r in replicas) * len(replicas) / len(arrivals),
        first_tokens=np.sort([a.first_at - a.arrival.at_seconds for a in counted]),
        latencies=np.sort([a.ended_at - a.arrival.at_seconds for a in counted]),
        num_lookups=index.num_lookups if index else 0,
        num_probes=index.num_probes if index else 0,
        num_events=index.num_events if index else 0,
        peak_entries=index.peak_entries if index else 0,
    )
