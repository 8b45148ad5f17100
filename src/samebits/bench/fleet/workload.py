"""Requests of many groups of users: prompts of a group start alike, and some groups ask far more than others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samebits.bench.workload import Arrival
from samebits.core.errors import BadInput

MAX_FLEET_REQUESTS = 2_000_000


@dataclass(frozen=True)
class Groups:
    """What `grouped` draws from.

    rate           requests per second and replica, in a Poisson process
    seconds        for which they keep coming
    prompt_lens    tokens of a prompt that are its own, each as likely
    new_tokens     the mean; lengths are spread evenly from one to twice as many
    num_groups     per replica; the n-th asks 1/n as often as the first
    prefix_tokens  that all prompts of a group start with
    """

    rate: float = 1.0
    seconds: float = 60.0
    prompt_lens: tuple[int, ...] = (32, 128, 512)
    new_tokens: int = 64
    num_groups: int = 4
    prefix_tokens: int = 1024
    seed: int = 0


def grouped(groups: Groups, num_replicas: int) -> tuple[Arrival, ...]:
    """Independent users, so many that each replica has its share; the same groups and seed give the same requests."""
    count = groups.rate * groups.seconds * num_replicas
    if not groups.prompt_lens or count > MAX_FLEET_REQUESTS / 2:
        given = f"{count:,.0f} requests, prompts of {groups.prompt_lens}"
        raise BadInput("bench", "groups", given, f"a prompt length, and {MAX_FLEET_REQUESTS // 2:,} requests at most")
    draw = np.random.Generator(np.random.Philox([groups.seed, num_replicas]))
    at = np.cumsum(draw.exponential(1 / (groups.rate * num_replicas), max(8, int(2 * count))))
    at = at[: max(1, int(np.searchsorted(at, groups.seconds)))]
    shares = np.cumsum(1 / np.arange(1, groups.num_groups * num_replicas + 1))
    chosen = np.searchsorted(shares, draw.random(len(at)) * shares[-1])
    own = draw.choice(groups.prompt_lens, len(at))
    new_tokens = draw.integers(1, 2 * groups.new_tokens, len(at))
    rows = zip(at.tolist(), own.tolist(), new_tokens.tolist(), chosen.tolist(), strict=True)
    shared = groups.prefix_tokens
    return tuple(Arrival(t, shared + length, new, f"group {group}", shared) for t, length, new, group in rows)
