"""Which replica a request goes to, by what a router knows: how many requests each has, and what their pages hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from samebits.bench.fleet.prefix_index import PrefixIndex
from samebits.bench.fleet.replica import Replica
from samebits.cache import PrefixChain
from samebits.core.errors import UnknownName

MOST_AHEAD = 8  # requests that a replica with the prefix may have more than one without


class Router(Protocol):
    """Chooses by number; `index` is there where pages are looked at."""

    index: PrefixIndex | None

    def choose(self, prompt: np.ndarray) -> int: ...


class Random:
    """Any replica, whatever it does."""

    index = None

    def __init__(self, replicas: Sequence[Replica], page_size: int, seed: int) -> None:
        self._replicas, self._draw = replicas, np.random.Generator(np.random.Philox([seed, 7]))

    def choose(self, prompt: np.ndarray) -> int:
        return int(self._draw.integers(len(self._replicas)))


class PowerOfTwo(Random):
    """Of two at random, the one with fewer requests."""

    def choose(self, prompt: np.ndarray) -> int:
        return self._less_busy(self._draw.integers(len(self._replicas), size=2).tolist())

    def _less_busy(self, numbers: Sequence[int]) -> int:
        return min(numbers, key=lambda number: self._replicas[number].num_open)


class PrefixAware(PowerOfTwo):
    """Of two that hold most of the prompt, the one with fewer requests; one of any two where those have far fewer."""

    def __init__(self, replicas: Sequence[Replica], page_size: int, seed: int) -> None:
        super().__init__(replicas, page_size, seed)
        self.index: PrefixIndex = PrefixIndex()  # type: ignore[assignment]
        self._page_size = page_size
        for number, replica in enumerate(replicas):
            replica.scheduler.pages.pool.listener = self.index.listener(number)

    def choose(self, prompt: np.ndarray) -> int:
        num_pages = (len(prompt) - 1) // self._page_size  # the last token is always computed
        holders = self.index.longest(PrefixChain(self._page_size).upto(prompt, num_pages))
        other = super().choose(prompt)
        if not holders:
            return other
        numbers = self._numbers(holders)
        best = self._less_busy(numbers[self._draw.integers(len(numbers), size=2)].tolist())
        ahead = self._replicas[best].num_open - self._replicas[other].num_open
        return best if ahead <= MOST_AHEAD else other

    def _numbers(self, bits: int) -> np.ndarray:
        """Those of the replicas whose bits are set."""
        as_bytes = np.frombuffer(bits.to_bytes(-(-len(self._replicas) // 8), "little"), np.uint8)
        return np.flatnonzero(np.unpackbits(as_bytes, bitorder="little"))


ROUTINGS: dict[str, type[Random]] = {"random": Random, "power-of-two": PowerOfTwo, "prefix-aware": PrefixAware}


def routing_of(name: str) -> type[Random]:
    if name not in ROUTINGS:
        raise UnknownName("routing", name, list(ROUTINGS))
    return ROUTINGS[name]
