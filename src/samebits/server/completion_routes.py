"""The routes /v1/chat/completions and /v1/completions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from samebits.loaders.chat import FROZEN_TIME
from samebits.server.answers import ChatShape, CompletionShape, Shape, envelope, whole_answer
from samebits.server.engine_streams import Started, all_completions, merged, start_streams, usage
from samebits.server.errors import bad_request, from_exception
from samebits.server.json_output import json_response, json_text
from samebits.server.model import ServedModel
from samebits.server.prompts import short_enough, text_size, token_lists
from samebits.server.protocol import ChatBody, CompletionBody, Sampling
from samebits.server.request_body import read_body, sampling_params
from samebits.server.threads import off_loop

log = logging.getLogger("samebits.server")
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
CHARS_A_TOKEN = 10  # or so, in an answer
EVENTS_A_TURN = 16
EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


async def chat_completions(request: Request) -> Response:
    """Answers to a conversation, through the model's own template."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, ChatBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs", body.top_logprobs, "logprobs to be true")
    messages = [m.as_dict() for m in body.messages]
    now = FROZEN_TIME if served.is_deterministic else None
    effort = None if body.reasoning_effort in (None, "none") else {"reasoning_effort": body.reasoning_effort}
    prompt = await asyncio.to_thread(short_enough, "messages", served.llm.chat_prompt, messages, now, effort)
    room = max(1, served.llm.engine.max_len - len(prompt))
    max_tokens = body.given("max_completion_tokens", body.given("max_tokens", room))
    logprobs = body.given("top_logprobs", 0) if body.logprobs else None
    params = sampling_params(body, served.limits, max_tokens, logprobs, served.is_deterministic)
    started = await start_streams(request, served, [prompt], params, body, "messages")
    return await respond(request, served, body, ChatShape(bool(body.logprobs)), started)


async def completions(request: Request) -> Response:
    """Continuations of prompts: a text, token ids, or several of them."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, CompletionBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    prompts = await off_loop(token_lists, text_size(body.prompt), served, body.prompt, "prompt")
    max_tokens = body.given("max_tokens", DEFAULT_COMPLETION_TOKENS)
    params = sampling_params(body, served.limits, max_tokens, body.logprobs, served.is_deterministic)
    started = await start_streams(request, served, prompts, params, body, "prompt")
    return await respond(request, served, body, CompletionShape(body.logprobs is not None), started)


async def respond(request: Request, served: ServedModel, body: Sampling, shape: Shape, started: Started) -> Response:
    """A whole answer, or events as they come."""
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        events = stream_events(served, shape, request.state.request_id, started, include_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers=EVENT_HEADERS)
    answers = await all_completions(request, started)
    request_id, count = request.state.request_id, sum(len(a.token_ids) for of_prompt in answers for a in of_prompt)
    size = count * CHARS_A_TOKEN * (1 + (started.streams[0].job.params.logprobs or 0))
    return await json_response(lambda: whole_answer(served, shape, request_id, answers, usage(started.streams)), size)


async def stream_events(
    served: ServedModel, shape: Shape, request_id: str, started: Started, include_usage: bool
) -> AsyncIterator[str]:
    """Server-sent events; an error in mid-stream is an event too. Leaving them unread ends the request."""
    tokenizer, streams = served.llm.tokenizer, started.streams
    n = len(streams[0].job.answers)
    head = {**envelope(served, shape, request_id, shape.chunk), **({"usage": None} if include_usage else {})}
    offsets, num_sent = [0] * (n * len(streams)), 0
    try:
        for index in range(len(offsets)):
            if first := shape.first(index):
                yield event({**head, "choices": [first]})
        async for number, sample, piece in merged(started):
            index = number * n + sample
            yield event({**head, "choices": [shape.part(tokenizer, index, piece, offsets[index])]})
            offsets[index] += len(piece.text) if piece.is_answer else 0
            num_sent += 1
            if num_sent % EVENTS_A_TURN == 0:
                await asyncio.sleep(
                    0
                )  # many pieces may be ready at once, and nothing else would give other clients a turn
        if include_usage:
            yield event({**head, "choices": [], "usage": usage(streams)})
    except Exception as error:
        log.exception("%s failed in mid-stream", request_id)
        yield event(from_exception(error).as_json())
    yield "data: [DONE]\n\n"


def event(content: object) -> str:
    return f"data: {json_text(content)}\n\n"
