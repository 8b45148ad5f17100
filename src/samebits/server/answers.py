"""Answers of /v1/completions in OpenAI's shapes: whole ones and chunks of streams; and what all answers start with."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from samebits.engine.answer import Completion, Piece
from samebits.loaders import Tokenizer
from samebits.server.model import ServedModel
from samebits.server.turn_reader import FINISH


def finish_reason(reason: str | None) -> str | None:
    return None if reason is None else FINISH.get(reason, reason)


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode_bytes([token]).decode("utf-8", "replace")


def completion_logprobs(tokenizer: Tokenizer, pieces: Iterable[Piece], offset: int = 0) -> dict[str, Any]:
    result: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for p in pieces:
        if p.token_id is None or p.logprob is None:
            continue
        text = token_text(tokenizer, p.token_id)
        result["tokens"].append(text)
        result["token_logprobs"].append(p.logprob)
        result["top_logprobs"].append({token_text(tokenizer, t): value for t, value in p.top_logprobs})
        result["text_offset"].append(offset)
        offset += len(text)
    return dict(result)


class CompletionShape:
    """A request's choices, with log-probabilities where it asked for them."""

    whole = chunk = "text_completion"
    prefix = "cmpl-"

    def __init__(self, has_logprobs: bool) -> None:
        self._has_logprobs = has_logprobs

    def choice(self, tokenizer: Tokenizer, index: int, answer: Completion) -> dict[str, Any]:
        logprobs = completion_logprobs(tokenizer, answer.logprobs) if self._has_logprobs else None
        return {
            "index": index,
            "text": answer.text,
            "logprobs": logprobs,
            "finish_reason": finish_reason(answer.finish_reason),
        }

    def part(self, tokenizer: Tokenizer, index: int, piece: Piece, offset: int) -> dict[str, Any]:
        logprobs = completion_logprobs(tokenizer, [piece], offset) if self._has_logprobs else None
        return {
            "index": index,
            "text": piece.text if piece.is_answer else "",
            "logprobs": logprobs,
            "finish_reason": finish_reason(piece.finish_reason),
        }


def envelope(served: ServedModel, prefix: str, request_id: str, kind: str) -> dict[str, Any]:
    """What every answer and chunk starts with."""
    return {
        "id": prefix + request_id,
        "object": kind,
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
    }


def whole_answer(
    served: ServedModel,
    shape: CompletionShape,
    request_id: str,
    answers: Sequence[Sequence[Completion]],
    usage: dict[str, Any],
) -> dict[str, Any]:
    """All choices, those of the first prompt first."""
    flat = [answer for of_prompt in answers for answer in of_prompt]
    choices = [shape.choice(served.llm.tokenizer, i, answer) for i, answer in enumerate(flat)]
    return {**envelope(served, shape.prefix, request_id, shape.whole), "choices": choices, "usage": usage}
