"""How a request wants its tokens chosen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from samebits.core.arguments import flag, real_number, shown, texts, whole_number, whole_numbers
from samebits.core.errors import BadInput
from samebits.core.sampling_defaults import BOUNDS, MAX_TOP_K, MIN_TEMPERATURE, SamplingDefaults

if TYPE_CHECKING:
    import numpy as np

SAMPLE = "sample"  # what refusals of a draw begin with
FOLLOW = "follow"  # what refusals of a response format that an answer cannot follow begin with: the request's mistake
DRAWN_SEED_SHIFT = 11  # leaves 53 bits, which a double holds
MAX_SEED = 2**64 - 1
MAX_BIAS, MAX_ID = 1e6, 2**31 - 1
WHOLE = {"max_tokens": (0, 1 << 20), "min_tokens": (0, 1 << 20), "n": (1, 128)}
WHOLE_OR_NONE = {"top_k": (0, MAX_TOP_K), "seed": (0, MAX_SEED), "logprobs": (0, 128), "prompt_logprobs": (0, 128)}
REAL = {"presence_penalty": (-1e3, 1e3), "frequency_penalty": (-1e3, 1e3)}
FLAGS = ("hash_logits", "receipt", "ignore_eos", "include_stop", "skip_special")
TEXTS = ("stop", "bad_words")


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """One request's parameters. Raises BadInput for a value that cannot be meant.

    Temperature, top_k, top_p, min_p and repetition_penalty are the model's own if left out: `resolved` fills them in.

    seed              of the draws; None draws one, which the answer reports
    min_tokens        an answer does not end of itself before it has so many
    stop              a text that ends the answer, or several, which are not part of it unless `include_stop`; kept as a
                      tuple, which `stops` gives
    stop_token_ids    tokens that do the same
    skip_special      tokens that are no text, such as the end of a turn, are left out of the answer's text
    logit_bias        what is added to the logits of tokens, by id
    allowed_token_ids if given, the only tokens that may be drawn; list the end of a text too where it may come
    bad_words         words that are not written, as far as they are spelled in their usual tokens
    receipt           a record of everything that made the answer, with which it can be made and compared again; lists
                      and texts may be no longer than a server would accept
    prompt_logprobs   log-probabilities of the prompt's tokens too, and of so many of the likeliest in their places
    """

    max_tokens: int = 128
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    stop: str | Sequence[str] = ()
    logprobs: int | None = None
    hash_logits: bool = False
    receipt: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    skip_special: bool = True
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    prompt_logprobs: int | None = None
    shown_ids: frozenset[int] = frozenset()  # control tokens whose text is part of the answer
    skip_special_tokens: InitVar[bool | None] = None  # vLLM's name of skip_special
    include_stop_str_in_output: InitVar[bool | None] = None  # vLLM's name of include_stop

    def __post_init__(self, skip_special_tokens: bool | None, include_stop_str_in_output: bool | None) -> None:
        if skip_special_tokens is not None:
            self._set("skip_special", skip_special_tokens)
        if include_stop_str_in_output is not None:
            self._set("include_stop", include_stop_str_in_output)
        for name, (low, high) in WHOLE.items():
            self._set(name, whole_number("sampling", name, getattr(self, name), low, high))
        for name, (low, high) in WHOLE_OR_NONE.items():
            if (value := getattr(self, name)) is not None:
                self._set(name, whole_number("sampling", name, value, low, high))
        for name, (least, most) in REAL.items():
            self._set(name, real_number("sampling", name, getattr(self, name), least, most))
        for name, (least, most) in BOUNDS.items():
            if (value := getattr(self, name)) is not None:
                self._set(name, real_number("sampling", name, value, least, most))
        for name in FLAGS:
            flag("sampling", name, getattr(self, name))
        for name in TEXTS:
            self._set(name, texts("sampling", name, getattr(self, name)))
        self._set("stop_token_ids", whole_numbers("sampling", "stop_token_ids", self.stop_token_ids, 0, MAX_ID))
        if self.allowed_token_ids is not None:
            ids = whole_numbers("sampling", "allowed_token_ids", self.allowed_token_ids, 0, MAX_ID)
            if not ids:
                raise BadInput("sampling", "allowed_token_ids", "none", "at least one")
            self._set("allowed_token_ids", ids)
        if self.min_tokens > self.max_tokens:
            raise BadInput("sampling", "min_tokens", self.min_tokens, f"0 .. {self.max_tokens}, which is max_tokens")
        if self.temperature is not None and 0 < self.temperature < MIN_TEMPERATURE:
            raise BadInput("sampling", "temperature", self.temperature, "0, or 0.0001 and more")
        self._set("logit_bias", _biases(self.logit_bias))
        if self.receipt:
            self._check_receipt_size()

    def _check_receipt_size(self) -> None:
        """Raise BadInput if a receipt of this request would be refused as too costly to check."""
        from samebits.core.request_limits import MAX_ITEMS, MAX_STOP_CHARS  # most requests want no receipt

        for name, most in MAX_ITEMS.items():
            if len(getattr(self, name) or ()) > most:
                given = f"{len(getattr(self, name))} items"
                raise BadInput("sampling", name, given, f"at most {most} for an answer with a receipt")
        for name in TEXTS:
            longest = max(map(len, getattr(self, name)), default=0)
            if longest > MAX_STOP_CHARS:
                needed = f"at most {MAX_STOP_CHARS} for an answer with a receipt"
                raise BadInput("sampling", name, f"a text of {longest} characters", needed)

    def _set(self, name: str, value: object) -> None:
        """A value as it was meant in place of the one that was given, once, while the record is made."""
        object.__setattr__(self, name, value)

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(self.stop)

    def with_seed(self) -> SamplingParams:
        """The same with a seed: its own, or one drawn now, which every reader of JSON can hold."""
        if self.seed is not None:
            return self
        return replace(self, seed=int.from_bytes(os.urandom(8), "little") >> DRAWN_SEED_SHIFT)

    def resolved(self, defaults: SamplingDefaults) -> SamplingParams:
        """Return the same parameters, with those that were left out taken from `defaults`."""
        left_out = {name: value for name, value in defaults.values().items() if getattr(self, name) is None}
        return replace(self, **left_out) if left_out else self  # type: ignore[arg-type]

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


def _biases(given: Any) -> dict[int, float]:
    """Biases by token id, which JSON gives as a text of digits; BadInput for anything else."""
    if not isinstance(given, Mapping):
        raise BadInput("sampling", "logit_bias", shown(given), "numbers by token id, such as {42: -1.5}")
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
