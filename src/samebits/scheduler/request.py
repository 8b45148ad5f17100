"""What the scheduler knows of a request: tokens, how many samples, how urgent."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from samebits.cache import PrefixChain

WAITING, RUNNING, UNBORN, FINISHED = "waiting", "running", "unborn", "finished"


@dataclass(frozen=True, eq=False)
class PromptRequest:
    """One prompt to be continued `num_samples` times.

    prompt      int32 [tokens], at least one
    priority    smaller is served sooner
    salt        requests share prefixes only with those of the same salt
    wants_all   logits of every prompt token are wanted, so the first sample may skip none
    draws       tokens are drawn after the prompt; otherwise the request ends with its prompt
    expected    int32 [tokens], what a single sample is expected to draw, at least one token: computed in chunks like
                the prompt. Whoever draws another token of them ends the sequence; it may go on behind them
    """

    prompt: np.ndarray
    num_samples: int = 1
    priority: int = 0
    salt: bytes = b""
    wants_all: bool = False
    draws: bool = True
    expected: np.ndarray | None = None

    @property
    def num_ahead(self) -> int:
        """Expected tokens that are computed: all but the last, after which nothing is drawn."""
        return 0 if self.expected is None else len(self.expected) - 1


@dataclass(eq=False, slots=True)
class Sequence:
    """One sample of a request. The scheduler alone changes it."""

    request: PromptRequest
    sample_index: int
    order: tuple[int, int]  # the smaller is served first and preempted last
    chain: PrefixChain
    tokens: np.ndarray  # known ones while it waits; a running sequence's are in its slot
    state: str = WAITING
    slot: int = -1
    num_preemptions: int = 0
    num_cached_tokens: int = 0  # found in pages when it was last admitted
    unborn: list[Sequence] = field(default_factory=list)  # samples that fork off when the prompt is computed

    @property
    def num_scored(self) -> int:
        """Tokens whose logits are wanted: those of the prompt, once for all samples."""
        return len(self.request.prompt) if self.request.wants_all and self.sample_index == 0 else 0

    @property
    def num_reached(self) -> int:
        """Tokens that it will have computed at least: the known ones, and those that are expected."""
        return max(len(self.tokens), len(self.request.prompt) + self.request.num_ahead)

    def __lt__(self, other: Sequence) -> bool:
        return self.order < other.order
