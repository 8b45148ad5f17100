"""The route /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from samebits.server.answers import CompletionShape, envelope, whole_answer
from samebits.server.engine_streams import Started, all_completions, merged, start_streams, usage
from samebits.server.json_output import json_response
from samebits.server.model import ServedModel
from samebits.server.prompts import text_size, token_lists
from samebits.server.protocol import CompletionBody, Sampling
from samebits.server.request_body import read_body, sampling_params
from samebits.server.server_events import event_stream
from samebits.server.threads import off_loop

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
CHARS_A_TOKEN = 10  # or so, in an answer


async def completions(request: Request) -> Response:
    """Continuations of prompts: a text, token ids, or several of them."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, CompletionBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    prompts = await off_loop(token_lists, text_size(body.prompt), served, body.prompt, "prompt")
    max_tokens = body.given("max_tokens", DEFAULT_COMPLETION_TOKENS)
    params = sampling_params(body, served.limits, max_tokens, body.logprobs, served.is_deterministic)
    started = await start_streams(
        request, served, prompts, params, "prompt", body.output_format, body.given("priority", 0)
    )
    return await respond(request, served, body, CompletionShape(body.logprobs is not None), started)


async def respond(
    request: Request, served: ServedModel, body: Sampling, shape: CompletionShape, started: Started
) -> Response:
    """A whole answer, or events as they come."""
    request_id = request.state.request_id
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return event_stream(chunks(served, shape, request_id, started, include_usage), request_id)
    answers = await all_completions(request, started)
    count = sum(len(a.token_ids) for of_prompt in answers for a in of_prompt)
    size = count * CHARS_A_TOKEN * (1 + (started.streams[0].job.params.logprobs or 0))
    return await json_response(lambda: whole_answer(served, shape, request_id, answers, usage(started.streams)), size)


async def chunks(
    served: ServedModel, shape: CompletionShape, request_id: str, started: Started, include_usage: bool
) -> AsyncIterator[dict[str, Any]]:
    """The chunks of a stream, usage last."""
    tokenizer, streams = served.llm.tokenizer, started.streams
    n = len(streams[0].job.answers)
    head = {
        **envelope(served, shape.prefix, request_id, shape.chunk),
        **({"usage": None} if include_usage else {}),
    }
    offsets = [0] * (n * len(streams))
    async for number, sample, piece in merged(started):
        index = number * n + sample
        yield {**head, "choices": [shape.part(tokenizer, index, piece, offsets[index])]}
        offsets[index] += len(piece.text) if piece.is_answer else 0
    if include_usage:
        yield {**head, "choices": [], "usage": usage(streams)}
