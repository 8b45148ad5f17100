"""Answers of /v1/completions in OpenAI's shapes: whole ones and chunks of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from samebits.engine.answer import Completion, Piece
from samebits.loaders import Tokenizer
from samebits.server.answers.common import of_prompt, proofs, token_ids
from samebits.server.answers.text_offsets import AnswerOffsets, prompt_offsets
from samebits.server.bodies.openai import CompletionBody
from samebits.server.engines import Answering
from samebits.server.receipts import ReceiptDesk
from samebits.server.turns.reader import FINISH

WHOLE = CHUNK = "text_completion"
Token = tuple[int, float | None, tuple[tuple[int, float], ...], int]  # its id, log-probability, alternatives, offset


def finish_reason(reason: str | None) -> str | None:
    return None if reason is None else FINISH.get(reason, reason)


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """Return a token's text, or `bytes:` and its escaped bytes if they are not UTF-8, as OpenAI names such tokens."""
    data = tokenizer.decode_bytes([token])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(b) if 32 <= b < 127 and b != ord("\\") else f"\\x{b:02x}" for b in data)


def alternatives(tokenizer: Tokenizer, token: int, top: Iterable[tuple[int, float]]) -> dict[str, float]:
    """Return log-probabilities by name; tokens whose text is another one's too are named `token_id:ID`, as in vLLM.

    token   the token at this place: its text names it and no other
    """
    named, chosen = dict[str, float](), token_name(tokenizer, token)
    for other, logprob in top:
        name = token_name(tokenizer, other)
        is_taken = name in named or (name == chosen and other != token)
        named[f"token_id:{other}" if is_taken else name] = logprob
    return named


def logprob_lists(tokenizer: Tokenizer, tokens: Iterable[Token]) -> dict[str, list[Any]]:
    """Return log-probabilities of tokens in OpenAI's four lists."""
    result: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token, logprob, top, offset in tokens:
        result["tokens"].append(token_name(tokenizer, token))
        result["token_logprobs"].append(logprob)
        result["top_logprobs"].append(None if logprob is None else alternatives(tokenizer, token, top))
        result["text_offset"].append(offset)
    return result


def prompt_tokens(tokenizer: Tokenizer, job: Answering) -> Iterator[Token]:
    """Yield a prompt's tokens with their log-probabilities; the first token has none."""
    found, ids = job.prompt_logprobs, job.prompt.tolist()
    if found is not None:
        rows = zip(ids, (None, *found.token_logprobs), ((), *found.top), prompt_offsets(tokenizer, ids), strict=False)
        for token, logprob, top, offset in rows:
            yield token, logprob, top[: job.params.logprobs], offset


def answer_tokens(pieces: Iterable[Piece], offsets: AnswerOffsets) -> Iterator[Token]:
    """Yield the tokens of an answer's next pieces."""
    for piece in pieces:
        if piece.token_id is not None and piece.logprob is not None:
            yield piece.token_id, piece.logprob, piece.top_logprobs, offsets.push(piece.token_id)


class PromptShape:
    """What the choices of one prompt say of it. Each part is made once, when the first choice needs it."""

    def __init__(self, tokenizer: Tokenizer, job: Answering, body: CompletionBody) -> None:
        self._tokenizer, self.job, self.is_echoed = tokenizer, job, bool(body.echo)

    @cached_property
    def text(self) -> str:
        """The prompt's text if it is echoed, else none."""
        return self._tokenizer.decode(self.job.prompt.tolist(), skip_special=True) if self.is_echoed else ""

    @cached_property
    def lists(self) -> dict[str, list[Any]]:
        """The prompt's log-probabilities in OpenAI's four lists."""
        return logprob_lists(self._tokenizer, prompt_tokens(self._tokenizer, self.job))

    @cached_property
    def logprobs(self) -> dict[str, Any]:
        """The prompt's log-probabilities in vLLM's shape."""
        return of_prompt(self._tokenizer, self.job)


class ChoiceShape:
    """One choice, whole or in parts. An echoed prompt is part of it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        index: int,
        prompt: PromptShape,
        body: CompletionBody,
        desk: ReceiptDesk | None,
    ) -> None:
        self._tokenizer, self._index, self._prompt, self._desk = tokenizer, index, prompt, desk
        self._has_logprobs = body.logprobs is not None
        self._offsets: AnswerOffsets | None = None
        self._is_first = True
        self._tells_of_prompt, self._has_token_ids = body.prompt_logprobs is not None, bool(body.return_token_ids)

    @property
    def echoes_next(self) -> bool:
        """Whether the next part brings the whole prompt, which takes as long to make as the prompt is long."""
        return self._is_first and self._prompt.is_echoed

    def whole(self, answer: Completion) -> dict[str, Any]:
        """The choice; its logprobs are null where not asked for."""
        return {
            "index": self._index,
            "text": self._prompt.text + answer.text,
            "logprobs": self._lists(self._prompt.is_echoed, answer.logprobs),
            "finish_reason": finish_reason(answer.finish_reason),
            **proofs(answer, self._desk),
            **(token_ids(answer.token_ids) if self._has_token_ids else {}),
            **(self._prompt.logprobs if self._tells_of_prompt else {}),
        }

    def part(self, piece: Piece) -> dict[str, Any]:
        """What a piece adds; the prompt is part of the first."""
        is_echoed, self._is_first = self.echoes_next, False
        return {
            "index": self._index,
            "text": (self._prompt.text if is_echoed else "") + (piece.text if piece.is_answer else ""),
            "logprobs": self._lists(is_echoed, [piece]),
            "finish_reason": finish_reason(piece.finish_reason),
            **proofs(piece, self._desk),
            **(token_ids([piece.token_id]) if self._has_token_ids else {}),
        }

    def _lists(self, is_echoed: bool, pieces: Iterable[Piece]) -> dict[str, list[Any]] | None:
        """Return the log-probabilities of the next pieces, after those of an echoed prompt; None if not asked for."""
        if not self._has_logprobs:
            return None
        self._offsets = self._offsets or AnswerOffsets(self._tokenizer, self._prompt.job.params, len(self._prompt.text))
        lists = logprob_lists(self._tokenizer, answer_tokens(pieces, self._offsets))
        return {name: [*self._prompt.lists[name], *lists[name]] for name in lists} if is_echoed else lists
