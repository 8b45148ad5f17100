"""From a request's body to streams of the engine, and their pieces back in one order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from samebits.core.errors import BadInput
from samebits.engine.answer import Completion, Piece
from samebits.engine.async_engine import QueueFull, Stream
from samebits.engine.sampling import SamplingParams
from samebits.server.errors import ApiError, bad_request, busy
from samebits.server.grammar_masks import Follower
from samebits.server.json_input import parse_object
from samebits.server.limits import MAX_UNREAD_PIECES, Limits
from samebits.server.logs import printable
from samebits.server.model import ServedModel
from samebits.server.protocol import Body, Sampling, check_refused, unknown_fields
from samebits.server.threads import off_loop

log = logging.getLogger("samebits.server")
AnyBody = TypeVar("AnyBody", bound=Body)
Result = TypeVar("Result")
SEED_BITS = (1 << 64) - 1
POLL_SECONDS = 0.25  # how often a waiting call looks whether its client is still there


async def read_body(request: Request, kind: type[AnyBody], max_bytes: int) -> AnyBody:
    """The checked body; ApiError for one that is too long, not JSON, or wrong."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            raise ApiError(413, f"body: got more than {max_bytes} bytes; needs fewer", code="body_too_large")
    body, unknown = await off_loop(checked_body, len(data), data, kind)
    if unknown:
        log.warning("%s ignores unknown fields: %s", printable(request.url.path), ", ".join(map(repr, unknown)))
    return body


def checked_body(data: bytes | bytearray, kind: type[AnyBody]) -> tuple[AnyBody, list[str]]:
    """The body, and the unknown names in it; ApiError or ValidationError for a wrong one."""
    content = parse_object(data)
    check_refused(kind, content)
    return kind.model_validate(content), unknown_fields(kind, content)


def sampling_params(
    body: Sampling, limits: Limits, max_tokens: int, logprobs: int | None, is_deterministic: bool
) -> SamplingParams:
    """The engine's parameters; without a seed a deterministic server takes 0."""
    n, stops = body.given("n", 1), body.stops()
    if n > limits.max_samples:
        raise bad_request("n", n, f"at most {limits.max_samples}")
    if len(stops) > limits.max_stops:
        raise bad_request("stop", f"{len(stops)} strings", f"at most {limits.max_stops}")
    seed = body.seed if body.seed is not None or not is_deterministic else 0
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=body.given("temperature", 1.0),
        top_k=body.given("top_k", 0),
        top_p=max(body.given("top_p", 1.0), 2.0**-16),
        min_p=body.given("min_p", 0.0),
        repetition_penalty=body.given("repetition_penalty", 1.0),
        presence_penalty=body.given("presence_penalty", 0.0),
        frequency_penalty=body.given("frequency_penalty", 0.0),
        logit_bias={int(token): value for token, value in body.given("logit_bias", {}).items()},
        seed=None if seed is None else seed & SEED_BITS,
        n=n,
        stop=stops,
        logprobs=logprobs,
        ignore_eos=body.given("ignore_eos", False),
    )


@dataclass(frozen=True)
class Started:
    """A request's streams, one per prompt, and what follows their format."""

    streams: list[Stream]
    follower: Follower | None

    def close(self) -> None:
        """Ends what is under way."""
        for stream in self.streams:
            stream.close()
        if self.follower:
            self.follower.end()


async def start_streams(
    request: Request,
    served: ServedModel,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    body: Sampling,
    param: str,
) -> Started:
    """A stream for each prompt, or none: a mistake in one ends those that were started.

    `param` is the field that prompts came in.
    """
    follower: Follower | None = None
    if body.response_format is not None:
        follower = await while_connected(request, served.grammars.follower(body.response_format))
    deadline = served.llm.engine.clock() + served.limits.deadline_seconds
    started, make_mask = Started([], follower), follower.new_mask if follower else None
    try:
        for prompt in prompts:
            options = {"priority": body.given("priority", 0), "deadline": deadline, "make_mask": make_mask}
            started.streams.append(await served.engine.generate(prompt, params, **options))
    except BaseException as error:
        started.close()
        if isinstance(error, QueueFull):
            raise busy(f"the server is busy: {error}") from None
        if isinstance(error, BadInput) and error.argument == "prompt":
            code = "context_length_exceeded" if all(prompts) else "invalid_value"
            raise ApiError(400, str(error), param, code) from None
        raise
    return started


async def merged(started: Started) -> AsyncIterator[tuple[int, int, Piece]]:
    """(stream, sample, piece) of all streams as they come; leaving early ends them all, and so does falling behind."""
    pieces: asyncio.Queue[tuple[int, int, Piece] | Exception | None] = asyncio.Queue()

    async def forward(number: int, stream: Stream) -> None:
        try:
            async for sample, piece in stream:
                if pieces.qsize() >= MAX_UNREAD_PIECES:
                    raise ApiError(408, "the client reads its answer too slowly")
                pieces.put_nowait((number, sample, piece))
            pieces.put_nowait(None)
        except Exception as error:
            stream.close()
            pieces.put_nowait(error)

    tasks = [asyncio.create_task(forward(i, stream)) for i, stream in enumerate(started.streams)]
    try:
        num_open = len(tasks)
        while num_open:
            event = await pieces.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                num_open -= 1
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()
        started.close()


async def all_completions(request: Request, started: Started) -> list[list[Completion]]:
    """Every stream's answers; a client that goes away ends them."""

    async def wait() -> list[list[Completion]]:
        async for _ in merged(started):
            pass
        return [stream.job.completions() for stream in started.streams]

    return await while_connected(request, wait())


async def while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """The result of some work, which is cancelled when the client goes away."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=POLL_SECONDS))[0]:
            if await request.is_disconnected():
                raise ApiError(499, "the client has gone")
        return task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


def usage(streams: Sequence[Stream]) -> dict[str, Any]:
    """Tokens of all prompts and answers."""
    prompt = sum(len(s.job.prompt) for s in streams)
    completion = sum(len(a.token_ids) for s in streams for a in s.job.answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
