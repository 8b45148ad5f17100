"""Answers of /v1/completions in OpenAI's shapes: whole ones and chunks of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class ChoiceShape:
    """One choice, whole or in parts; `echoed` is the text of its prompt, where that is part of it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        index: int,
        job: Answering,
        body: CompletionBody,
        echoed: str | None,
        desk: ReceiptDesk | None,
    ) -> None:
        self._tokenizer, self._index, self._job, self._echoed = tokenizer, index, job, echoed
        self._desk = desk
        has_logprobs = body.logprobs is not None
        self._offsets = AnswerOffsets(tokenizer, job.params, len(echoed or "")) if has_logprobs else None
        self._tells_of_prompt, self._has_token_ids = body.prompt_logprobs is not None, bool(body.return_token_ids)

    def whole(self, answer: Completion) -> dict[str, Any]:
        """The choice; its logprobs are null where not asked for."""
        return {
            "index": self._index,
            "text": (self._echoed or "") + answer.text,
            "logprobs": self._lists(self._echoed is not None, answer.logprobs),
            "finish_reason": finish_reason(answer.finish_reason),
            **proofs(answer, self._desk),
            **(token_ids(answer.token_ids) if self._has_token_ids else {}),
            **(of_prompt(self._tokenizer, self._job) if self._tells_of_prompt else {}),
        }

    def part(self, piece: Piece) -> dict[str, Any]:
        """What a piece adds; the prompt is part of the first."""
        echoed, self._echoed = self._echoed, None
        return {
            "index": self._index,
            "text": (echoed or "") + (piece.text if piece.is_answer else ""),
            "logprobs": self._lists(echoed is not None, [piece]),
            "finish_reason": finish_reason(piece.finish_reason),
            **proofs(piece, self._desk),
            **(token_ids([piece.token_id]) if self._has_token_ids else {}),
        }

    def _lists(self, is_echoed: bool, pieces: Iterable[Piece]) -> dict[str, list[Any]] | None:
        """Return the log-probabilities of the next pieces, after those of an echoed prompt; None if not asked for."""
        if self._offsets is None:
            return None
        of_prompt = prompt_tokens(self._tokenizer, self._job) if is_echoed else ()
        return logprob_lists(self._tokenizer, [*of_prompt, *answer_tokens(pieces, self._offsets)])
