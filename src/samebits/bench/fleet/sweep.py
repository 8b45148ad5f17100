"""Every routing policy with every number of replicas, each in a process of its own where there are processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from samebits.bench.fleet.play import FleetOutcome, play
from samebits.bench.fleet.workload import Groups, grouped
from samebits.bench.simulate import Cost, Room
from samebits.bench.workload import Arrival
from samebits.core.errors import BadInput
from samebits.scheduler import Policy

MAX_REPLICAS = 10_000


@dataclass(frozen=True)
class Play:
    """One simulation: the same every time, wherever it runs.

    requests   recorded ones, or groups of users of which each replica has a share
    """

    routing: str
    num_replicas: int
    requests: Groups | tuple[Arrival, ...]
    room: Room
    policy: Policy
    cost: Cost
    seed: int

    def outcome(self) -> FleetOutcome:
        requests = self.requests
        arrivals = grouped(requests, self.num_replicas) if isinstance(requests, Groups) else requests
        return play(self.routing, self.num_replicas, arrivals, self.room, self.policy, self.cost, self.seed)


def numbers_of_replicas(text: str) -> tuple[int, ...]:
    """ "1..1000" as 1, 3, 10 .. 1000, or numbers separated by commas, in order; BadInput for anything else."""
    first, dots, last = text.partition("..")
    parts = [first, last] if dots else text.split(",")
    found = [int(part) for part in parts if part.strip().isdecimal() and len(part) < 9]
    if len(found) != len(parts) or not all(1 <= n <= MAX_REPLICAS for n in found) or (dots and found[0] > found[1]):
        needed = f"numbers from 1 to {MAX_REPLICAS}, such as 1..1000 or 1,8,64"
        raise BadInput("bench", "--replicas", repr(text[:80]), needed)
    if dots:
        steps = (factor * 10**power for power in range(5) for factor in (1, 3))
        found += [n for n in steps if found[0] < n < found[1]]
    return tuple(sorted(set(found)))


def outcomes_of(plays: Sequence[Play], num_processes: int) -> Iterator[FleetOutcome]:
    """In the order of the plays."""
    if num_processes == 1 or len(plays) == 1:
        yield from map(Play.outcome, plays)
        return
    with ProcessPoolExecutor(min(num_processes, len(plays)), get_context("spawn")) as pool:
        yield from pool.map(Play.outcome, plays)
