"""How a request wants its tokens chosen."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from samebits.core.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """One request's wishes. `seed` None draws one, which the answer reports."""

    max_tokens: int = 128
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    hash_logits: bool = False
    ignore_eos: bool = False
    shown_ids: frozenset[int] = frozenset()  # control tokens whose text is part of the answer

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[float, float]] = {
            "max_tokens": (1, 1 << 20),
            "temperature": (0, 1e6),
            "top_k": (0, 1 << 30),
            "top_p": (2.0**-16, 1),
            "min_p": (0, 1),
            "repetition_penalty": (1e-3, 1e3),
            "presence_penalty": (-1e3, 1e3),
            "frequency_penalty": (-1e3, 1e3),
            "n": (1, 128),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not low <= value <= high:
                raise BadInput("sampling", name, repr(value), f"{low:g} .. {high:g}")
        if 0 < self.temperature < 1e-4:
            raise BadInput("sampling", "temperature", self.temperature, "0, or 0.0001 and more")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise BadInput("sampling", "seed", self.seed, "0 .. 2^64 - 1")
        if self.logprobs is not None and not 0 <= self.logprobs <= 128:
            raise BadInput("sampling", "logprobs", self.logprobs, "0 .. 128")
        if any(not s for s in self.stop):
            raise BadInput("sampling", "stop", "an empty string", "strings with text")

    def with_seed(self) -> SamplingParams:
        """The same with a seed: its own, or one drawn now."""
        if self.seed is not None:
            return self
        return replace(self, seed=int.from_bytes(os.urandom(8), "little"))

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


class TokenMask(Protocol):
    """What a grammar allows next in one answer."""

    def allowed(self) -> np.ndarray:
        """bool [vocab]; at least one is true."""

    def accept(self, token: int) -> None:
        """The token was chosen."""
