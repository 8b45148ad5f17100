"""The route /v1/completions."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from samebits.core.sampling_defaults import NEUTRAL, SamplingDefaults
from samebits.engine.answer import Completion, Piece
from samebits.engine.sampling import SamplingParams
from samebits.server.answer_ids import COMPLETION
from samebits.server.answers.common import answer_size, envelope
from samebits.server.answers.completions import CHUNK, WHOLE, ChoiceShape, PromptShape
from samebits.server.answers.engine_streams import (
    Started,
    all_completions,
    check_num_logprobs,
    merged,
    start_streams,
    usage,
)
from samebits.server.answers.stream_usage import StreamUsage
from samebits.server.bodies.openai import CompletionBody
from samebits.server.bodies.prompts import prompts_of, text_size
from samebits.server.bodies.reading import read_body, sampling_params
from samebits.server.http.errors import bad_request
from samebits.server.http.json_output import json_response
from samebits.server.http.server_events import Chunk, event_stream
from samebits.server.http.threads import off_loop
from samebits.server.limits import Limits
from samebits.server.model import ServedModel

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's


async def completions(request: Request) -> Response:
    """Continuations of prompts: a text, token ids, or several of them."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, CompletionBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    prompts = await off_loop(prompts_of, text_size(body.prompt), served, body)
    max_tokens = body.given("max_tokens", DEFAULT_COMPLETION_TOKENS)
    max_tokens = served.llm.max_len if max_tokens == -1 else max_tokens
    params = sampling_params(
        body, served.limits, max_tokens, body.logprobs, served.is_deterministic, defaults_of(body, served, max_tokens)
    )
    params = drawn_params(body, params, served.limits)
    check_num_prompt_logprobs(body, prompts)
    started = await start_streams(request, served, prompts, params, "prompt", body, body.output_format)
    shapes = shapes_of(served, body, started)
    request_id = request.state.request_id
    if body.stream:
        return event_stream(chunks(served, body, shapes, request_id, started), request_id)
    answers = await all_completions(request, started)

    def whole() -> dict[str, Any]:
        kept = [answer for of_one in answers for answer in likeliest(of_one, body.given("n", 1))]
        choices = [shape.whole(answer) for shape, answer in zip(shapes, kept, strict=True)]
        head = envelope(served, COMPLETION, request_id, WHOLE, started.streams[0].job)
        return {**head, "choices": choices, "usage": usage(started.streams)}

    num_echoed = sum(map(len, prompts)) * body.given("n", 1) if body.echo else 0
    return await json_response(whole, answer_size(params, usage(started.streams), num_echoed))


def defaults_of(body: CompletionBody, served: ServedModel, max_tokens: int) -> SamplingDefaults:
    """Return the values of the sampling fields that a body leaves out.

    They are neutral for requests that measure the model instead of asking for an answer: those that score their prompt,
    and those of token ids that want token ids back, as trainers send them.
    """
    scores_prompt = max_tokens == 0 or (bool(body.echo) and body.logprobs is not None)
    is_of_ids = bool(body.return_token_ids) and not any(isinstance(prompt, str) for prompt in body.prompt)
    return NEUTRAL if scores_prompt or is_of_ids else served.llm.sampling_defaults


def check_num_prompt_logprobs(body: CompletionBody, prompts: list[list[int]]) -> None:
    """ApiError for too many log-probabilities of prompts: each choice repeats those of its prompt."""
    of_a_token = 0 if body.prompt_logprobs is None else 1 + body.prompt_logprobs
    if body.echo and body.logprobs is not None:
        of_a_token += 1 + body.logprobs
    count = sum(map(len, prompts)) * of_a_token * body.given("n", 1)
    check_num_logprobs(count, "logprobs" if body.prompt_logprobs is None else "prompt_logprobs")


def drawn_params(body: CompletionBody, params: SamplingParams, limits: Limits) -> SamplingParams:
    """The parameters with what echo and best_of need beside them; ApiError where the body contradicts itself."""
    if body.echo and body.logprobs is not None:
        params = replace(params, prompt_logprobs=max(body.logprobs, params.prompt_logprobs or 0))
    if body.best_of is None or body.best_of == params.n:
        return params
    if body.stream or not params.n <= body.best_of <= limits.max_samples:
        needed = f"{params.n} to {limits.max_samples}, and no stream"
        raise bad_request("best_of", body.best_of, needed)
    return replace(params, n=body.best_of, logprobs=params.logprobs or 0)


def likeliest(answers: list[Completion], count: int) -> list[Completion]:
    """The `count` answers of the highest log-probability per token, where more were drawn; the likeliest first."""
    if len(answers) == count:
        return answers

    def per_token(answer: Completion) -> float:
        drawn = [p.logprob for p in answer.logprobs if p.logprob is not None]
        return math.fsum(drawn) / len(drawn) if drawn else -math.inf

    return sorted(answers, key=per_token, reverse=True)[:count]


def shapes_of(served: ServedModel, body: CompletionBody, started: Started) -> list[ChoiceShape]:
    """One for each choice, those of the first prompt first."""
    tokenizer, n = served.llm.tokenizer, body.given("n", 1)
    prompts = [PromptShape(tokenizer, stream.job, body) for stream in started.streams]
    desk = served.desk if body.receipt else None
    return [
        ChoiceShape(tokenizer, number * n + sample, prompt, body, desk)
        for number, prompt in enumerate(prompts)
        for sample in range(n)
    ]


async def chunks(
    served: ServedModel, body: CompletionBody, shapes: list[ChoiceShape], request_id: str, started: Started
) -> AsyncIterator[Chunk]:
    """Yield the chunks of a stream, with the usage of the whole request last if it is asked for."""
    streams, counter = started.streams, StreamUsage(body.stream_options)
    n = streams[0].job.params.n
    head = envelope(served, COMPLETION, request_id, CHUNK, streams[0].job)
    async for number, sample, piece in merged(started):
        choice = number * n + sample
        shape = shapes[choice]
        chunk_head = head | counter.of_chunk(choice, len(streams[number].job.prompt), piece)

        def chunk(
            chunk_head: dict[str, Any] = chunk_head, shape: ChoiceShape = shape, piece: Piece = piece
        ) -> dict[str, Any]:
            return {**chunk_head, "choices": [shape.part(piece)]}

        yield chunk if shape.echoes_next or piece.receipt is not None else chunk()
    if counter.is_included:
        yield {**head, "choices": [], "usage": usage(streams)}
