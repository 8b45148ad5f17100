"""The route /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from samebits.loaders.chat import PromptEnd
from samebits.server.answer_ids import CHAT
from samebits.server.answers.chat import CHUNK, WHOLE, ChatShape
from samebits.server.answers.common import answer_size, envelope, of_prompt
from samebits.server.answers.stream_usage import StreamUsage
from samebits.server.bodies.openai import ChatBody
from samebits.server.bodies.reading import read_body
from samebits.server.http.errors import bad_request
from samebits.server.http.json_output import json_response
from samebits.server.http.server_events import Chunk, event_stream
from samebits.server.http.threads import off_loop, on_worker
from samebits.server.limits import MAX_NAME_CHARS
from samebits.server.model import ServedModel
from samebits.server.turns.turn import Turn, TurnStream, start_turn


async def chat_completions(request: Request) -> Response:
    """Answers to a conversation, through the model's own template."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, ChatBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    stream = await start_turn(request, served, await off_loop(turn_of, request.state.body_bytes, body))
    desk = served.desk if body.receipt else None
    shape = ChatShape(served.llm.tokenizer, bool(body.logprobs), bool(body.return_token_ids), desk)
    request_id = request.state.request_id
    if body.stream:
        head = envelope(served, CHAT, request_id, CHUNK, stream.job)
        return event_stream(chunks(head, shape, stream, StreamUsage(body.stream_options)), request_id)
    answers, head = await stream.answers(), envelope(served, CHAT, request_id, WHOLE, stream.job)

    def whole() -> dict[str, Any]:
        choices = [shape.choice(index, answer) for index, answer in enumerate(answers)]
        return {**head, "choices": choices, "usage": stream.usage(), **of_prompt(served.llm.tokenizer, stream.job)}

    return await json_response(whole, answer_size(stream.job.params, stream.usage()))


def turn_of(body: ChatBody) -> Turn:
    """The body as a turn; ApiError for fields that contradict each other."""
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs", body.top_logprobs, "logprobs to be true")
    variables = body.given("chat_template_kwargs", {})
    effort = None if body.reasoning_effort in (None, "none") else body.reasoning_effort
    ending = PromptEnd.OPEN if body.add_generation_prompt is False else PromptEnd.ANSWER
    if body.continue_final_message:
        if body.add_generation_prompt:
            raise bad_request("continue_final_message", "true", "false or absent with add_generation_prompt")
        ending = PromptEnd.CONTINUED
    return Turn(
        messages=[m.as_dict() for m in body.messages],
        sampling=body,
        max_tokens=body.max_tokens,
        logprobs=body.given("top_logprobs", 0) if body.logprobs else None,
        offer=body.offer,
        variables={**({"reasoning_effort": effort} if effort else {}), **variables},
        fields={name: f"chat_template_kwargs.{name[:MAX_NAME_CHARS]}" for name in variables},
        ending=ending,
    )


async def chunks(
    head: dict[str, Any], shape: ChatShape, stream: TurnStream, usage: StreamUsage
) -> AsyncIterator[Chunk]:
    """Yield the chunks of a stream, with the usage of the whole request last if it is asked for."""
    num_prompt_tokens = len(stream.job.prompt)
    for index in range(stream.num_choices):
        yield {**head, **usage.of_chunk(index, num_prompt_tokens), "choices": [shape.first(index)]}
    async for step in stream.steps():
        has_receipt = step.piece.receipt is not None
        chunk_head = head | usage.of_chunk(step.choice, num_prompt_tokens, step.piece)
        parts = shape.parts(step)
        for part in await on_worker(lambda parts=parts: list(parts)) if has_receipt else parts:
            yield {**chunk_head, "choices": [part]}
    if usage.is_included:
        yield {**head, "choices": [], "usage": stream.usage()}
