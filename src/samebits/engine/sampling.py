"""How a request wants its tokens chosen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from samebits.core.arguments import flag, real_number, texts, whole_number, whole_numbers
from samebits.core.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

MAX_SEED = 2**64 - 1
WHOLE = {"max_tokens": (1, 1 << 20), "top_k": (0, 1 << 30), "n": (1, 128)}
WHOLE_OR_NONE = {"seed": (0, MAX_SEED), "logprobs": (0, 128)}
REAL = {
    "temperature": (0, 1e6),
    "top_p": (2.0**-16, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-3, 1e3),
    "presence_penalty": (-1e3, 1e3),
    "frequency_penalty": (-1e3, 1e3),
}
FLAGS = ("hash_logits", "ignore_eos")
TEXTS = ("stop",)
MAX_BIAS, MAX_ID = 1e6, 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """One request's wishes. `seed` None draws one, which the answer reports. BadInput for what cannot be meant.

    stop         a text that ends the answer, or several; kept as a tuple, which `stops` gives
    logit_bias   what is added to the logits of tokens, by id
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
    stop: str | Sequence[str] = ()
    logprobs: int | None = None
    hash_logits: bool = False
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name, (low, high) in WHOLE.items():
            self._set(name, whole_number("sampling", name, getattr(self, name), low, high))
        for name, (low, high) in WHOLE_OR_NONE.items():
            if (value := getattr(self, name)) is not None:
                self._set(name, whole_number("sampling", name, value, low, high))
        for name, (least, most) in REAL.items():
            self._set(name, real_number("sampling", name, getattr(self, name), least, most))
        for name in FLAGS:
            flag("sampling", name, getattr(self, name))
        for name in TEXTS:
            self._set(name, texts("sampling", name, getattr(self, name)))
        if 0 < self.temperature < 1e-4:
            raise BadInput("sampling", "temperature", self.temperature, "0, or 0.0001 and more")
        self._set("logit_bias", _biases(self.logit_bias))

    def _set(self, name: str, value: object) -> None:
        """A value as it was meant in place of the one that was given, once, while the record is made."""
        object.__setattr__(self, name, value)

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(self.stop)

    def with_seed(self) -> SamplingParams:
        """The same with a seed: its own, or one drawn now."""
        if self.seed is not None:
            return self
        return replace(self, seed=int.from_bytes(os.urandom(8), "little"))

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


def _biases(given: Any) -> dict[int, float]:
    """Biases by token id, which JSON gives as a text of digits; BadInput for anything else."""
    if not isinstance(given, Mapping):
        raise BadInput("sampling", "logit_bias", repr(given), "numbers by token id, such as {42: -1.5}")
    ids = (int(token) if isinstance(token, str) and token.isdecimal() else token for token in given)
    tokens = whole_numbers("sampling", "logit_bias's token", ids, 0, MAX_ID)
    biases = [real_number("sampling", "logit_bias", bias, -MAX_BIAS, MAX_BIAS) for bias in given.values()]
    return dict(zip(tokens, biases, strict=True))


class TokenMask(Protocol):
    """What a grammar allows next in one answer."""

    def allowed(self) -> np.ndarray:
        """bool [vocab]; at least one is true."""

    def accept(self, token: int) -> None:
        """The token was chosen."""
