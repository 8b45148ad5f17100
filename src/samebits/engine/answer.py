"""One sample of a request while it is generated: what is drawn from its logits, and when it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.numerics.counter import split_seed
from samebits.engine.bans import Bans
from samebits.engine.logprobs import TokenLogprobs
from samebits.engine.request_options import NO_OPTIONS, RequestOptions
from samebits.engine.runner import LogitsRow
from samebits.engine.sampling import SAMPLE, SamplingParams
from samebits.engine.text import AnswerText
from samebits.engine.text_logprobs import PromptLogprobs
from samebits.loaders import Tokenizer
from samebits.receipts.chain import LogitsChain

if TYPE_CHECKING:  # imported with the first receipt
    from samebits.receipts.record import Receipt, Said

# What draws read of their request, beside the seed, as tensors.
DRAW_WISHES = {"sample_index": "i32", "temperature": "f32", "top_k": "i32", "top_p": "f32", "min_p": "f32"}
FINAL = "final"  # the channel whose text is the answer
FAILED = "error"  # why an answer ended that has no receipt


@dataclass(frozen=True)
class Piece:
    """What one token added: text that is complete and not held back for a stop string.

    Without a token it only ends an answer that was cut.
    """

    token_id: int | None
    text: str
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    # on the last: "stop", "length", "cancelled", "deadline" or "error"; of an answer of which tokens are expected
    # "diverged", where this is another one, or "unfinished", where it would go on behind the last of them
    finish_reason: str | None = None
    channel: str | None = None  # that the text is in, of a model that has channels
    recipient: str | None = None  # of a message that is for a function, of such a model
    stop: str | None = None  # on the last, where a stop string ended the answer: that string
    logits_sha256: str | None = None  # on the last, where asked for: over the logits of all drawn tokens
    receipt: Receipt | None = None  # on the last, where asked for

    @property
    def is_answer(self) -> bool:
        """Whether the text is meant for whoever asked; a model that has channels thinks in others."""
        return self.channel in (None, FINAL) and self.recipient is None


@dataclass(frozen=True)
class Completion:
    """One finished answer; `reasoning` is what a model with channels wrote in others than the final one.

    `prompt_logprobs` are those of the prompt, where asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    seed: int
    logprobs: tuple[Piece, ...] = ()
    logits_sha256: str | None = None
    reasoning: str = ""
    prompt_logprobs: PromptLogprobs | None = None
    stop: str | None = None  # the string that ended it, where one did
    receipt: Receipt | None = None  # where asked for; an answer that failed has none


def end_ids(tokenizer: Tokenizer, params: SamplingParams) -> frozenset[int]:
    """Tokens that end an answer."""
    return (frozenset() if params.ignore_eos else tokenizer.special.end_ids) | frozenset(params.stop_token_ids)


def gathered(
    pieces: Sequence[Piece], params: SamplingParams, prompt_logprobs: PromptLogprobs | None = None
) -> Completion:
    """The answer that these pieces make, all that there are of it so far."""
    last = pieces[-1] if pieces else Piece(None, "")
    return Completion(
        text="".join(p.text for p in pieces if p.is_answer),
        token_ids=tuple(p.token_id for p in pieces if p.token_id is not None),
        finish_reason=last.finish_reason or "length",
        seed=params.seed or 0,
        logprobs=tuple(replace(p, receipt=None) for p in pieces if p.logprob is not None),
        logits_sha256=last.logits_sha256,
        reasoning="".join(p.text for p in pieces if not p.is_answer),
        prompt_logprobs=prompt_logprobs,
        stop=last.stop,
        receipt=last.receipt,
    )


class Answer:
    """Tokens, text and end of one sample.

    max_len    bounds prompt and answer together
    issue      makes the receipt of an answer that wishes for one, once it has ended
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: np.ndarray,
        params: SamplingParams,
        sample_index: int,
        max_len: int,
        options: RequestOptions = NO_OPTIONS,
        bans: Bans | None = None,
        issue: Callable[[Said], Receipt] | None = None,
    ) -> None:
        self.params, self.sample_index, self._issue = params, sample_index, issue
        self.mask = options.make_mask() if options.make_mask else None
        self.num_tokens = len(prompt)  # known ones, the prompt's included
        self.pieces: list[Piece] = []
        self.finish_reason: str | None = None
        self._expected, self._goes_on = options.drafted, options.goes_on
        self._text, self._end_ids = AnswerText(tokenizer, params), end_ids(tokenizer, params)
        self._bans = bans or Bans(tokenizer, params, self._end_ids)
        self._max_len = min(max_len, len(prompt) + params.max_tokens)
        self._digest = hashlib.sha256() if params.hash_logits else None
        self.chain = LogitsChain() if params.receipt else None
        # whether the row that a token was drawn from is looked at once more when the token is taken
        self.reads_logits = params.logprobs is not None or params.hash_logits or params.receipt
        self._is_bent = bool(params.logit_bias or params.has_penalties or self.mask)  # at every draw
        low, high = (int(word) for word in split_seed(np.uint64(params.seed or 0)))
        numbers = (params.temperature, params.top_k, params.top_p, params.min_p)
        self.draw_wishes = (sample_index, *numbers, low, high)  # DRAW_WISHES, and the words of the seed
        self._prompt = prompt
        self._counts: np.ndarray | None = None

    @property
    def num_drawn(self) -> int:
        return self.num_tokens - len(self._prompt)

    @property
    def num_left(self) -> int:
        """Tokens that may still be drawn."""
        return self._max_len - self.num_tokens

    @property
    def is_shaped(self) -> bool:
        """Whether the logits are changed before the next draw."""
        return self._is_bent or self._bans.is_any(self.num_drawn)

    def bias(self, vocab_size: int) -> np.ndarray:
        """float32 [vocab]: the request's bias, -Inf where its grammar or itself allows no token."""
        bias = np.zeros(vocab_size, np.float32)
        for token, value in self.params.logit_bias.items():
            bias[token] = value
        if self.mask:
            bias[~self.mask.allowed()] = -np.inf
        if self._bans.is_any(self.num_drawn):
            start = max(0, len(self.pieces) - self._bans.num_looked_back)
            self._bans.apply(bias, self.num_drawn, [p.token_id for p in self.pieces[start:] if p.token_id is not None])
            if np.isneginf(bias).all():
                raise BadInput(SAMPLE, "tokens", "none that is allowed", "one that the request leaves to be drawn")
        return bias

    def counts(self, vocab_size: int) -> np.ndarray:
        """int32 [vocab]: how often each token stands in prompt and answer."""
        if self._counts is None:
            seen = np.concatenate([self._prompt, self.token_ids]).astype(np.int64)
            self._counts = np.bincount(seen, minlength=vocab_size).astype(np.int32)
        return self._counts

    def push(self, token: int, row: LogitsRow, logprobs: TokenLogprobs | None) -> Piece:
        """Takes a drawn token and the row that it was drawn from. The last piece has a finish_reason.

        Whatever is raised here, by a mask or a tokenizer for instance, leaves the answer open: `fail` ends it.
        """
        if self._digest:
            self._digest.update(row.values().tobytes())
        if self.chain:
            self.chain.update(row.digest())
        if self._counts is not None:
            self._counts[token] += 1
        if self.mask:
            self.mask.accept(token)
        self.num_tokens += 1
        is_end = token in self._end_ids
        is_shown = is_end and self.params.include_stop and token in self.params.stop_token_ids  # may be a long list
        may_stop = self.num_drawn > self.params.min_tokens
        text, is_stopped = ("", False) if is_end and not is_shown else self._text.push(token, may_stop)
        reason = "stop" if is_end or is_stopped else "length" if self.num_tokens >= self._max_len else None
        reason = self._verdict(token, reason)
        if reason and not is_stopped:
            text += self._text.finish()
        chosen, top = (logprobs.chosen, logprobs.top) if logprobs else (None, ())
        stop = self._text.met if is_stopped else None
        return self._add(Piece(token, text, chosen, top, reason, self._text.channel, self._text.recipient, stop))

    def _verdict(self, token: int, reason: str | None) -> str | None:
        """Why the answer ends with a token just counted, which would end it for this reason if nothing was expected."""
        if self._expected is None or self.num_drawn > len(self._expected):
            return reason
        if token != self._expected[self.num_drawn - 1]:
            return "diverged"
        is_last = self.num_drawn == len(self._expected)
        return reason or ("unfinished" if is_last and not self._goes_on else None)

    def cut(self, reason: str) -> Piece:
        """Ends an answer that is not finished, with the text that was held back."""
        text = self._text.finish()
        return self._add(Piece(None, text, None, (), reason, self._text.channel, self._text.recipient))

    def fail(self) -> Piece:
        """Ends an answer that is not finished, without a look at its text: nothing here can raise."""
        return self._add(Piece(None, "", finish_reason=FAILED))

    def _add(self, piece: Piece) -> Piece:
        if piece.finish_reason is not None and self._digest:
            piece = replace(piece, logits_sha256=self._digest.hexdigest())
        if piece.finish_reason not in (None, FAILED) and self._issue:
            piece = replace(piece, receipt=self._issue(self._said(piece)))
        self.pieces.append(piece)
        self.finish_reason = piece.finish_reason
        return piece

    def _said(self, last: Piece) -> Said:
        """The answer for its receipt, `last` being its end."""
        from samebits.receipts.record import Said

        pieces = [*self.pieces, last]
        text = "".join(p.text for p in pieces).encode("utf-8", "surrogatepass")
        token_ids = tuple(p.token_id for p in pieces if p.token_id is not None)
        links = tuple(self.chain.links) if self.chain else ()
        return Said(token_ids, links, last.finish_reason or "", hashlib.sha256(text).hexdigest())

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(p.token_id for p in self.pieces if p.token_id is not None)

    def completion(self, prompt_logprobs: PromptLogprobs | None = None) -> Completion:
        """The answer so far, with what was found of its prompt."""
        whole = gathered(self.pieces, self.params, prompt_logprobs)
        return replace(whole, logits_sha256=self._digest.hexdigest() if self._digest else None)
