"""Answers of /v1/chat/completions in OpenAI's shapes: whole ones and chunks of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from samebits.engine.answer import Piece
from samebits.loaders import Tokenizer
from samebits.server.answers.common import proofs, token_ids
from samebits.server.receipts import ReceiptDesk
from samebits.server.turns.events import (
    Call,
    CallArguments,
    CallStarted,
    ChoiceAnswer,
    Event,
    Finished,
    ReasoningDelta,
    Step,
    TextDelta,
)

WHOLE, CHUNK = "chat.completion", "chat.completion.chunk"


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


class ChatShape:
    """A request's choices, with log-probabilities, token ids and receipts where it asked for them."""

    def __init__(self, tokenizer: Tokenizer, has_logprobs: bool, has_token_ids: bool, desk: ReceiptDesk | None) -> None:
        self._tokenizer, self._has_logprobs, self._has_token_ids = tokenizer, has_logprobs, has_token_ids
        self._desk = desk

    def choice(self, index: int, answer: ChoiceAnswer) -> dict[str, Any]:
        """A whole choice; its content is null where there are calls alone."""
        content = None if answer.calls and not answer.text else answer.text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        pieces = answer.completion.logprobs if answer.completion else ()
        logprobs = chat_logprobs(self._tokenizer, pieces) if self._has_logprobs else None
        choice = {"index": index, "message": message, "logprobs": logprobs, "finish_reason": answer.finish_reason}
        if answer.completion and self._has_token_ids:
            choice |= token_ids(answer.completion.token_ids)
        return choice | (proofs(answer.completion, self._desk) if answer.completion else {})

    def first(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": "", "refusal": None}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def parts(self, step: Step) -> Iterator[dict[str, Any]]:
        """A chunk's choice for each event; the first has what is known of the token, the last the finish reason."""
        with_logprobs = self._has_logprobs and step.piece.token_id is not None
        logprobs = chat_logprobs(self._tokenizer, [step.piece]) if with_logprobs else None
        finish = next((e.reason for e in step.events if isinstance(e, Finished)), None)
        deltas = [_delta(event) for event in step.events if not isinstance(event, Finished)]
        ids = token_ids([step.piece.token_id]) if self._has_token_ids else {}
        if not deltas and (finish or logprobs or ids):
            deltas = [{} if finish else {"content": ""}]
        for number, delta in enumerate(deltas, 1):
            reason = finish if number == len(deltas) else None
            part = {"index": step.choice, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            yield part | ids | (proofs(step.piece, self._desk) if reason else {})
            logprobs, ids = None, {}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _delta(event: Event) -> dict[str, Any]:
    if isinstance(event, TextDelta):
        return {"content": event.text}
    if isinstance(event, ReasoningDelta):
        return {"reasoning_content": event.text}
    if isinstance(event, CallStarted):
        return {"tool_calls": [{"index": event.index, **_call(Call(event.id, event.name))}]}
    if isinstance(event, CallArguments):
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
    return {}
