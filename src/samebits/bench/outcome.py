"""What became of requests under one policy: stalls, waits, throughput, pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from samebits.bench.workload import Arrival


@dataclass(eq=False)
class Track:
    """One answer while its tokens come."""

    arrival: Arrival
    num_tokens: int = 0
    last_at: float = 0.0


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
    num_drafted: int = 0  # guessed tokens
    num_taken: int = 0  # and those that were right
    num_pages: int = 0
    peak_pages: int = 0
    page_seconds: float = 0.0

    def take_token(self, track: Track, now: float) -> bool:
        """Notes one token of an answer; True where it is the last."""
        if track.num_tokens:
            self.gaps.append(now - track.last_at)
            self.gap_ends.append(now - self.started_at)
        else:
            self.first_tokens.append(now - track.arrival.at_seconds)
        track.num_tokens, track.last_at = track.num_tokens + 1, now
        self.num_new_tokens += 1
        return track.num_tokens == track.arrival.new_tokens

    def gap_ms(self, share: float) -> float:
        """The gap that this share of gaps does not exceed; 1 is the worst."""
        return quantile_ms(self._sorted_gaps, share)

    def first_token_ms(self, share: float) -> float:
        return quantile_ms(np.sort(self.first_tokens), share)

    @property
    def tokens_per_second(self) -> float:
        return self.num_new_tokens / self.seconds

    @property
    def mean_pages(self) -> float:
        return self.page_seconds / self.seconds

    @cached_property
    def _sorted_gaps(self) -> np.ndarray:
        return np.sort(self.gaps)


def quantile_ms(ascending: np.ndarray, share: float) -> float:
    """Milliseconds that this share of ascending seconds does not exceed; 0 of none."""
    if not len(ascending):
        return 0.0
    return 1000 * float(ascending[max(0, int(np.ceil(share * len(ascending))) - 1)])
