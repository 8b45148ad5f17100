"""One sample of a request while it is generated: what is drawn from its logits, and when it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samebits.engine.logprobs import TokenLogprobs
from samebits.engine.sampling import SamplingParams, TokenMask
from samebits.engine.text import AnswerText
from samebits.loaders import Tokenizer

FINAL = "final"  # the channel whose text is the answer


@dataclass(frozen=True)
class Piece:
    """What one token added: text that is complete and not held back for a stop string.

    Without a token it only ends an answer that was cut.
    """

    token_id: int | None
    text: str
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    finish_reason: str | None = None  # on the last: "stop", "length", "cancelled", "deadline" or "error"
    channel: str | None = None  # that the text is in, of a model that has channels

    @property
    def is_answer(self) -> bool:
        """Whether the text is meant for whoever asked; a model that has channels thinks in others."""
        return self.channel in (None, FINAL)


@dataclass(frozen=True)
class Completion:
    """One finished answer; `reasoning` is what a model with channels wrote in others than the final one."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    seed: int
    logprobs: tuple[Piece, ...] = ()
    logits_sha256: str | None = None
    reasoning: str = ""


class Answer:
    """Tokens, text and end of one sample. `max_len` bounds prompt and answer together."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: np.ndarray,
        params: SamplingParams,
        sample_index: int,
        max_len: int,
        mask: TokenMask | None = None,
    ) -> None:
        self.params, self.sample_index, self.mask = params, sample_index, mask
        self.num_tokens = len(prompt)  # known ones, the prompt's included
        self.pieces: list[Piece] = []
        self.finish_reason: str | None = None
        self._text = AnswerText(tokenizer, params.stops)
        self._end_ids = frozenset() if params.ignore_eos else tokenizer.special.end_ids
        self._max_len = min(max_len, len(prompt) + params.max_tokens)
        self._digest = hashlib.sha256() if params.hash_logits else None
        self._prompt = prompt
        self._counts: np.ndarray | None = None

    def counts(self, vocab_size: int) -> np.ndarray:
        """int32 [vocab]: how often each token stands in prompt and answer."""
        if self._counts is None:
            seen = np.concatenate([self._prompt, self.token_ids]).astype(np.int64)
            self._counts = np.bincount(seen, minlength=vocab_size).astype(np.int32)
        return self._counts

    def push(self, token: int, logits: Callable[[], np.ndarray], logprobs: TokenLogprobs | None) -> Piece:
        """Takes a drawn token; logits() gives the row [vocab] it was drawn from. The last piece has a finish_reason.

        Whatever is raised here, by a mask or a tokenizer for instance, leaves the answer open: `fail` ends it.
        """
        if self._digest:
            self._digest.update(logits().tobytes())
        if self._counts is not None:
            self._counts[token] += 1
        if self.mask:
            self.mask.accept(token)
        self.num_tokens += 1
        is_end = token in self._end_ids
        text, is_stopped = ("", False) if is_end else self._text.push(token)
        reason = "stop" if is_end or is_stopped else "length" if self.num_tokens >= self._max_len else None
        if reason and not is_stopped:
            text += self._text.finish()
        if logprobs is None:
            return self._add(Piece(token, text, finish_reason=reason, channel=self._text.channel))
        return self._add(Piece(token, text, logprobs.chosen, logprobs.top, reason, self._text.channel))

    def cut(self, reason: str) -> Piece:
        """Ends an answer that is not finished, with the text that was held back."""
        text = self._text.finish()
        return self._add(Piece(None, text, finish_reason=reason, channel=self._text.channel))

    def fail(self) -> Piece:
        """Ends an answer that is not finished, without a look at its text: nothing here can raise."""
        return self._add(Piece(None, "", finish_reason="error"))

    def _add(self, piece: Piece) -> Piece:
        self.pieces.append(piece)
        self.finish_reason = piece.finish_reason
        return piece

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(p.token_id for p in self.pieces if p.token_id is not None)

    def completion(self) -> Completion:
        """The answer so far."""
        return Completion(
            text="".join(p.text for p in self.pieces if p.is_answer),
            token_ids=self.token_ids,
            finish_reason=self.finish_reason or "length",
            seed=self.params.seed or 0,
            logprobs=tuple(p for p in self.pieces if p.logprob is not None),
            logits_sha256=self._digest.hexdigest() if self._digest else None,
            reasoning="".join(p.text for p in self.pieces if not p.is_answer),
        )
