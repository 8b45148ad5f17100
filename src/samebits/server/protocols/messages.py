"""The route /v1/messages: Anthropic's protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from samebits.engine.answer import Completion
from samebits.loaders.chat import PromptEnd
from samebits.server.answer_ids import MESSAGE
from samebits.server.answers.common import answer_size
from samebits.server.bodies.reading import read_body
from samebits.server.http.json_output import json_response
from samebits.server.http.server_events import MESSAGES, Chunk, event_stream
from samebits.server.http.threads import off_loop
from samebits.server.model import ServedModel
from samebits.server.protocols.blocks import Block, BlockEvent, BlockWriter, Grown, Opened, blocks_of
from samebits.server.protocols.messages_body import MessagesBody
from samebits.server.protocols.turn_body import repeatable, thinking_variables
from samebits.server.receipts import ReceiptDesk
from samebits.server.tools.reading import Broken, parse_json
from samebits.server.turns.events import ChoiceAnswer
from samebits.server.turns.turn import Turn, TurnStream, start_turn

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
DELTAS = {"text": ("text_delta", "text"), "reasoning": ("thinking_delta", "thinking")}
DELTAS |= {"call": ("input_json_delta", "partial_json")}


async def messages(request: Request) -> Response:
    """An answer to a conversation, as blocks: thinking, text, calls."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, MessagesBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    turn = await off_loop(turn_of, request.state.body_bytes, served, body)
    stream = await start_turn(request, served, turn)
    head = {
        "id": MESSAGE + request.state.request_id,
        "type": "message",
        "role": "assistant",
        "model": served.name,
        "system_fingerprint": served.fingerprint,
    }
    desk = served.desk if body.receipt else None
    if body.stream:
        return event_stream(events(head, stream, desk), request.state.request_id, MESSAGES)
    (answer,) = await stream.answers()

    def whole() -> dict[str, Any]:
        content = [block_shape(block) for block in blocks_of(answer)]
        return {**head, "content": content, **ending(answer), "usage": usage_of(stream), **repeatable(answer, desk)}

    return await json_response(whole, answer_size(stream.job.params, stream.usage()))


def turn_of(served: ServedModel, body: MessagesBody) -> Turn:
    """The body as a turn. A conversation that ends with the assistant's words goes on from them."""
    told = body.conversation()
    variables: dict[str, Any] = {}
    if body.thinking and body.thinking.type == "disabled":
        variables |= thinking_variables(served, "thinking", False)
    if body.output_config and body.output_config.effort:
        variables["reasoning_effort"] = body.output_config.effort
    is_continued = told[-1]["role"] == "assistant" and "tool_calls" not in told[-1]
    return Turn(
        messages=told,
        sampling=body,
        max_tokens=body.max_tokens,
        offer=body.offer,
        variables=variables,
        fields={"reasoning_effort": "output_config.effort", "enable_thinking": "thinking"},
        ending=PromptEnd.CONTINUED if is_continued else PromptEnd.ANSWER,
    )


def block_shape(block: Block) -> dict[str, Any]:
    """A whole block; reasoning has no signature, since nobody but the client keeps it.

    A call that was cut is no object, and comes as text.
    """
    if block.kind == "call":
        try:
            given = parse_json(block.text or "{}")
        except Broken:
            return {"type": "text", "text": block.text}
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": given}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    return {"type": "text", "text": block.text}


def ending(answer: ChoiceAnswer) -> dict[str, Any]:
    """Why the answer ended, and the string that ended it."""
    stop = answer.completion.stop if answer.completion else None
    reason = "stop_sequence" if stop is not None else STOP_REASONS[answer.finish_reason]
    return {"stop_reason": reason, "stop_sequence": stop}


def usage_of(stream: TurnStream) -> dict[str, int]:
    counted = stream.usage()
    return {"input_tokens": counted["prompt_tokens"], "output_tokens": counted["completion_tokens"]}


async def events(head: dict[str, Any], stream: TurnStream, desk: ReceiptDesk | None) -> AsyncIterator[Chunk]:
    """Blocks as they come, between the message's start and its end."""
    start = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage_of(stream)}
    yield {"type": "message_start", "message": start}
    writer, answer = BlockWriter(), ChoiceAnswer()
    async for step in stream.steps():
        answer.take(step)
        for change in writer.push(step):
            yield changed(change)
    completion: Completion = stream.job.completions()[0]
    answer.completion = completion
    yield lambda: {
        "type": "message_delta",
        "delta": {**ending(answer), **repeatable(answer, desk)},
        "usage": usage_of(stream),
    }
    yield {"type": "message_stop"}


def changed(change: BlockEvent) -> dict[str, Any]:
    """The event of one change to a block."""
    if isinstance(change, Opened):
        return {"type": "content_block_start", "index": change.index, "content_block": block_shape(change.block)}
    if isinstance(change, Grown):
        kind, name = DELTAS[change.block.kind]
        return {"type": "content_block_delta", "index": change.index, "delta": {"type": kind, name: change.text}}
    return {"type": "content_block_stop", "index": change.index}
