"""How a request wants its tokens chosen."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from samebits.core.errors import BadInput

SAMPLE = "sample"  # what refusals of a draw begin with
DRAWN_SEED_SHIFT = 11  # leaves 53 bits, which a double holds


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """One request's wishes.

    seed              of the draws; None draws one, which the answer reports
    min_tokens        an answer does not end of itself before it has so many
    stop              texts that end an answer, which are not part of it unless `include_stop`
    stop_token_ids    tokens that do the same
    skip_special      tokens that are no text, such as the end of a turn, are left out of the answer's text
    allowed_token_ids if given, the only tokens that may be drawn; list the end of a text too where it may come
    bad_words         words that are not written, as far as they are spelled in their usual tokens
    prompt_logprobs   log-probabilities of the prompt's tokens too, and of so many of the likeliest in their places
    """

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
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    skip_special: bool = True
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    prompt_logprobs: int | None = None
    shown_ids: frozenset[int] = frozenset()  # control tokens whose text is part of the answer

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[float, float]] = {
            "max_tokens": (0, 1 << 20),
            "min_tokens": (0, self.max_tokens),
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
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and not 0 <= count <= 128:
                raise BadInput("sampling", name, count, "0 .. 128")
        for name in ("stop", "bad_words"):
            if any(not text for text in getattr(self, name)):
                raise BadInput("sampling", name, "an empty string", "strings with text")
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise BadInput("sampling", "allowed_token_ids", "none", "at least one")

    def with_seed(self) -> SamplingParams:
        """The same with a seed: its own, or one drawn now, which every reader of JSON can hold."""
        if self.seed is not None:
            return self
        return replace(self, seed=int.from_bytes(os.urandom(8), "little") >> DRAWN_SEED_SHIFT)

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


class TokenMask(Protocol):
    """What a grammar allows next in one answer."""

    def allowed(self) -> np.ndarray:
        """bool [vocab]; at least one is true."""

    def accept(self, token: int) -> None:
        """The token was chosen."""
