"""Answers in OpenAI's shapes: whole ones and chunks of streams."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from samebits.engine.answer import Completion, Piece
from samebits.loaders import Tokenizer
from samebits.server.model import ServedModel

FINISH = {"deadline": "length", "cancelled": "length", "error": "length"}  # our reasons in the words that clients know


def finish_reason(reason: str | None) -> str | None:
    return None if reason is None else FINISH.get(reason, reason)


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode_bytes([token]).decode("utf-8", "replace")


def chat_logprobs(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> dict[str, Any]:
    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = tokenizer.decode_bytes([token])
        return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}

    content = [
        {**entry(p.token_id, p.logprob), "top_logprobs": [entry(*top) for top in p.top_logprobs]}
        for p in pieces
        if p.token_id is not None and p.logprob is not None
    ]
    return {"content": content, "refusal": None}


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


class ChatShape:
    """Answers of /v1/chat/completions."""

    whole, chunk, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def __init__(self, has_logprobs: bool) -> None:
        self._has_logprobs = has_logprobs

    def choice(self, tokenizer: Tokenizer, index: int, answer: Completion) -> dict[str, Any]:
        logprobs = chat_logprobs(tokenizer, answer.logprobs) if self._has_logprobs else None
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        return {
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": finish_reason(answer.finish_reason),
        }

    def first(self, index: int) -> dict[str, Any] | None:
        delta = {"role": "assistant", "content": "", "refusal": None}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def part(self, tokenizer: Tokenizer, index: int, piece: Piece, offset: int) -> dict[str, Any]:
        logprobs = chat_logprobs(tokenizer, [piece]) if self._has_logprobs and piece.token_id is not None else None
        name = "content" if piece.is_answer else "reasoning_content"
        delta = {name: piece.text} if piece.text or not piece.finish_reason else {}
        return {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason(piece.finish_reason),
        }


class CompletionShape:
    """Answers of /v1/completions."""

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

    def first(self, index: int) -> dict[str, Any] | None:
        return None

    def part(self, tokenizer: Tokenizer, index: int, piece: Piece, offset: int) -> dict[str, Any]:
        logprobs = completion_logprobs(tokenizer, [piece], offset) if self._has_logprobs else None
        return {
            "index": index,
            "text": piece.text if piece.is_answer else "",
            "logprobs": logprobs,
            "finish_reason": finish_reason(piece.finish_reason),
        }


Shape = ChatShape | CompletionShape


def envelope(served: ServedModel, shape: Shape, request_id: str, kind: str) -> dict[str, Any]:
    """What every answer and chunk starts with."""
    return {
        "id": shape.prefix + request_id,
        "object": kind,
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
    }


def whole_answer(
    served: ServedModel, shape: Shape, request_id: str, answers: Sequence[Sequence[Completion]], usage: dict[str, Any]
) -> dict[str, Any]:
    """All choices, those of the first prompt first."""
    flat = [answer for of_prompt in answers for answer in of_prompt]
    choices = [shape.choice(served.llm.tokenizer, i, answer) for i, answer in enumerate(flat)]
    return {**envelope(served, shape, request_id, shape.whole), "choices": choices, "usage": usage}
