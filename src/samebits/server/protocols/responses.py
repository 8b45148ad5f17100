"""The route /v1/responses: OpenAI's newer protocol, without anything that is kept between requests."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from samebits.engine.answer import Piece
from samebits.engine.sampling import SamplingParams
from samebits.server.answer_ids import RESPONSE
from samebits.server.answers.chat import chat_logprobs
from samebits.server.answers.common import answer_size
from samebits.server.bodies.reading import read_body
from samebits.server.http.json_output import json_response
from samebits.server.http.server_events import RESPONSES, Chunk, event_stream
from samebits.server.http.threads import off_loop
from samebits.server.model import ServedModel
from samebits.server.protocols.blocks import Block, BlockEvent, BlockWriter, Closed, Grown, Opened, blocks_of
from samebits.server.protocols.responses_body import LOGPROBS, ResponsesBody
from samebits.server.protocols.turn_body import repeatable
from samebits.server.turns.events import ChoiceAnswer
from samebits.server.turns.turn import Turn, TurnStream, start_turn

CHARS_A_PIECE = 100  # or so, of a token with its log-probabilities
TOOLS_CHARS = 1 << 20  # at most or so; a response repeats its request's tools
PREFIXES = {"reasoning": "rs_", "text": "msg_", "call": "fc_"}


async def responses(request: Request) -> Response:
    """An answer to a conversation, as items: reasoning, messages, calls."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, ResponsesBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    stream = await start_turn(request, served, await off_loop(turn_of, request.state.body_bytes, body))
    shape = ResponseShape(served, body, request.state.request_id, stream.job.params)
    if body.stream:
        return event_stream(shape.events(stream), request.state.request_id, RESPONSES)
    (answer,) = await stream.answers()
    size = answer_size(stream.job.params, stream.usage()) + (TOOLS_CHARS if body.tools else 0)
    return await json_response(lambda: shape.whole(blocks_of(answer), answer, stream), size)


def turn_of(body: ResponsesBody) -> Turn:
    effort = body.reasoning.effort if body.reasoning else None
    has_logprobs = LOGPROBS in body.given("include", ())
    return Turn(
        messages=body.messages,
        sampling=body,
        max_tokens=body.max_output_tokens,
        logprobs=body.given("top_logprobs", 0) if has_logprobs else None,
        offer=body.offer,
        variables={"reasoning_effort": effort} if effort not in (None, "none") else {},
        fields={"reasoning_effort": "reasoning.effort"},
        param="input",
    )


class ResponseShape:
    """One request's response, whole or as the events of a stream."""

    def __init__(self, served: ServedModel, body: ResponsesBody, request_id: str, params: SamplingParams) -> None:
        self._served, self._body, self._id, self._params = served, body, request_id, params
        self._created, self._number = int(time.time()), -1

    def item(self, index: int, block: Block, status: str) -> dict[str, Any]:
        """An item of the output."""
        item: dict[str, Any] = {"id": f"{PREFIXES[block.kind]}{self._id}_{index}", "status": status}
        if block.kind == "call":
            named = {"call_id": block.id, "name": block.name, "arguments": block.text}
            return {**item, "type": "function_call", **named}
        if block.kind == "reasoning":
            content = [{"type": "reasoning_text", "text": block.text}] if block.text else []
            return {**item, "type": "reasoning", "summary": [], "content": content}
        content = [self._text_part(block.text, block.pieces)] if status != "in_progress" else []
        return {**item, "type": "message", "role": "assistant", "content": content}

    def _text_part(self, text: str, pieces: Sequence[Piece]) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs(pieces)}

    def _logprobs(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """Return the log-probabilities of these pieces of a text, none where they were not asked for."""
        return list(chat_logprobs(self._served.llm.tokenizer, pieces)["content"])

    def whole(self, blocks: list[Block], answer: ChoiceAnswer, stream: TurnStream) -> dict[str, Any]:
        """The response at its end."""
        is_cut = answer.finish_reason == "length"
        items = [self.item(i, block, _status(block.is_cut)) for i, block in enumerate(blocks)]
        told = self._response(_status(is_cut))
        told |= {
            "output": items,
            "usage": _usage(stream),
            **repeatable(answer, self._served.desk if self._body.receipt else None),
        }
        return told | ({"incomplete_details": {"reason": "max_output_tokens"}} if is_cut else {})

    def _response(self, status: str) -> dict[str, Any]:
        """What a response says of its request, without an output yet."""
        body = self._body
        asked = body.model_dump(by_alias=True, include={"tools", "tool_choice", "text", "reasoning"})
        return {
            "id": RESPONSE + self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._served.name,
            "system_fingerprint": self._served.fingerprint,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": {},
            "output": [],
            "parallel_tool_calls": body.offer.is_parallel,
            "previous_response_id": None,
            "reasoning": asked["reasoning"] or {"effort": None, "summary": None},
            "store": False,
            "temperature": self._params.temperature,
            "text": asked["text"] or {"format": {"type": "text"}},
            "tool_choice": asked["tool_choice"] or "auto",
            "tools": asked["tools"] or [],
            "top_p": self._params.top_p,
            "truncation": "disabled",
            "usage": None,
        }

    async def events(self, stream: TurnStream) -> AsyncIterator[Chunk]:
        """Items as they come, then the whole response."""
        writer, answer = BlockWriter(), ChoiceAnswer()
        for kind in ("response.created", "response.in_progress"):  # with all of the request's tools
            yield partial(self._begun, kind)
        async for step in stream.steps():
            answer.take(step)
            for change in writer.push(step):
                size = len(change.block.pieces) * CHARS_A_PIECE if isinstance(change, Closed) else 0
                for told in await off_loop(self._changes, size, change):
                    yield told
        answer.completion = stream.job.completions()[0]
        yield partial(self._ended, writer.blocks, answer, stream)

    def _begun(self, kind: str) -> dict[str, Any]:
        return self._event(kind, response=self._response("in_progress"))

    def _ended(self, blocks: list[Block], answer: ChoiceAnswer, stream: TurnStream) -> dict[str, Any]:
        response = self.whole(blocks, answer, stream)
        return self._event(f"response.{response['status']}", response=response)

    def _changes(self, change: BlockEvent) -> list[dict[str, Any]]:
        """The events of one change to a block."""
        block, item_id = change.block, f"{PREFIXES[change.block.kind]}{self._id}_{change.index}"
        at = {"output_index": change.index, "item_id": item_id}
        inside = {**at, "content_index": 0}
        if isinstance(change, Opened):
            item = self.item(change.index, block, "in_progress")
            told = [self._event("response.output_item.added", output_index=change.index, item=item)]
            if block.kind == "text":
                told.append(self._event("response.content_part.added", **inside, part=self._text_part("", ())))
            return told
        if isinstance(change, Grown):
            if block.kind == "call":
                return [self._event("response.function_call_arguments.delta", **at, delta=change.text)]
            if block.kind == "reasoning":
                return [self._event("response.reasoning_text.delta", **inside, delta=change.text)]
            logprobs = self._logprobs(change.pieces)
            return [self._event("response.output_text.delta", **inside, delta=change.text, logprobs=logprobs)]
        return [*self._closing(change, at, inside)]

    def _closing(self, change: Closed, at: dict[str, Any], inside: dict[str, Any]) -> list[dict[str, Any]]:
        block, told = change.block, []
        if block.kind == "call":
            done = self._event("response.function_call_arguments.done", **at, name=block.name, arguments=block.text)
            told.append(done)
        elif block.kind == "reasoning":
            told.append(self._event("response.reasoning_text.done", **inside, text=block.text))
        else:
            part = self._text_part(block.text, block.pieces)
            ended = {"text": block.text, "logprobs": part["logprobs"]}
            told.append(self._event("response.output_text.done", **inside, **ended))
            told.append(self._event("response.content_part.done", **inside, part=part))
        item = self.item(change.index, block, _status(block.is_cut))
        return [*told, self._event("response.output_item.done", output_index=change.index, item=item)]

    def _event(self, kind: str, **parts: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **parts}


def _status(is_cut: bool) -> str:
    return "incomplete" if is_cut else "completed"


def _usage(stream: TurnStream) -> dict[str, Any]:
    usage = stream.usage()
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": stream.num_cached_tokens},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": stream.num_reasoning_tokens},
        "total_tokens": usage["total_tokens"],
    }
