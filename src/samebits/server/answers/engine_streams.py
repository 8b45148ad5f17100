"""An HTTP request's streams of the engine: started together, their pieces in one order, ended with the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from starlette.requests import Request

from samebits.core.errors import BadInput
from samebits.engine.answer import Completion, Piece
from samebits.engine.async_engine import QueueFull
from samebits.engine.request_options import RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.grammar.masks import Follower
from samebits.server.answers.stream_usage import token_counts
from samebits.server.bodies.openai import Sampling
from samebits.server.engines import AnswerStream
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.errors import ApiError, bad_request, busy, of_field
from samebits.server.limits import MAX_LOGPROBS, MAX_UNREAD_PIECES
from samebits.server.model import ServedModel
from samebits.server.receipts import ReceiptDesk

Result = TypeVar("Result")
Pieces = asyncio.Queue[tuple[int, int, Piece] | Exception | None]  # (stream, sample, piece); None: a stream has ended
EVENTS_A_TURN = 32  # pieces of one request that are read while other clients wait
TEXTS_AT_ONCE = 16  # of one request to embed: starting or cancelling one takes the event loop a tenth of a millisecond
POLL_SECONDS = 0.25  # how often a waiting call looks whether its client is still there


@dataclass(frozen=True)
class Started:
    """Streams of one HTTP request, one per prompt, and what follows their format.

    request        the same object in all receipts of the HTTP request, and in no other's
    first_prompt   number of the first prompt among all prompts of the HTTP request
    """

    streams: list[AnswerStream]
    follower: Follower | None
    desk: ReceiptDesk
    request_id: str
    request: object = field(default_factory=object)
    first_prompt: int = 0

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
    param: str,
    sampling: Sampling,
    wanted: OutputFormat | None,
) -> Started:
    """Return a stream for each prompt, or none: a mistake in one ends those that were started.

    The streams end with the HTTP request at the latest, whether or not anybody has read them.

    param     the field that prompts came in
    sampling  how urgent answers are, and with whom they share prompts
    wanted    what answers are held to
    """
    if params.prompt_logprobs is not None:
        check_num_logprobs(sum(map(len, prompts)) * (1 + params.prompt_logprobs), "prompt_logprobs")
    params = params.with_seed()  # one for all prompts, which the answer names
    if served.desk.keep_seconds:
        params = replace(params, receipt=True)
    if params.receipt:
        await while_connected(request, served.prepare_receipts())
    follower: Follower | None = None
    if wanted is not None:
        follower = await while_connected(request, served.grammars.follower(wanted))
    deadline = served.engine.clock() + served.limits.deadline_seconds
    started = Started([], follower, served.desk, request.state.request_id)
    request.state.ends.callback(started.close)
    options = RequestOptions(
        priority=sampling.given("priority", 0),
        salt=sampling.given("cache_salt", "").encode(),
        deadline=deadline,
        make_mask=follower.new_mask if follower else None,
        grammar=wanted.stated() if wanted else None,
    )
    try:
        for prompt in prompts:
            started.streams.append(await served.engine.generate(prompt, params, options))
    except BaseException as error:
        started.close()
        if isinstance(error, QueueFull):
            raise busy(f"the server is busy: {error}") from None
        if isinstance(error, BadInput) and error.argument == "prompt":
            code = "context_length_exceeded" if all(prompts) else "invalid_value"
            raise of_field(error, param, code) from None
        raise
    return started


def check_num_logprobs(count: int, param: str) -> None:
    """ApiError for more log-probabilities than one request may ask for; `param` is the field that asks for them."""
    if count > MAX_LOGPROBS:
        needed = f"at most {MAX_LOGPROBS}: fewer tokens, alternatives or choices"
        raise bad_request(param, f"{count} log-probabilities in all", needed, "too_many_logprobs")


async def merged(started: Started) -> AsyncIterator[tuple[int, int, Piece]]:
    """Yield (stream, sample, piece) of all streams as they come.

    Leaving early ends all streams. ApiError, which ends them too, if the client falls behind or the answers have more
    log-probabilities than one request may ask for.
    """
    pieces: Pieces = asyncio.Queue()
    for number, stream in enumerate(started.streams):
        stream.deliver_to(_into(pieces, number, stream))
    try:
        num_open, num_logprobs, num_events = len(started.streams), 0, 0
        while num_open:
            event = await pieces.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                num_open -= 1
                continue
            number, sample, piece = event
            num_logprobs += 0 if piece.logprob is None else 1 + len(piece.top_logprobs)
            check_num_logprobs(num_logprobs, "logprobs")
            if piece.receipt is not None:
                prompt = started.first_prompt + number
                started.desk.keep(started.request_id, started.request, prompt, sample, piece.receipt)
            yield event
            num_events += 1
            if num_events % EVENTS_A_TURN == 0:  # many may be ready at once, and other clients get their turn
                await asyncio.sleep(0)
    finally:
        started.close()


def _into(pieces: Pieces, number: int, stream: AnswerStream) -> Callable[[tuple[int, Piece] | None], None]:
    """Return what puts a stream's events into the queue of all streams. An error ends the stream."""

    def give(event: tuple[int, Piece] | None) -> None:
        if event is None:
            try:
                stream.job.check()
            except Exception as error:
                pieces.put_nowait(error)
            else:
                pieces.put_nowait(None)
        elif pieces.qsize() < MAX_UNREAD_PIECES:
            pieces.put_nowait((number, *event))
        else:
            stream.deliver_to(lambda _: None)
            stream.close()
            pieces.put_nowait(ApiError(408, "the client reads its answer too slowly"))

    return give


async def all_completions(request: Request, started: Started) -> list[list[Completion]]:
    """Every stream's answers; a client that goes away ends them."""

    async def wait() -> list[list[Completion]]:
        async for _ in merged(started):
            pass
        return [stream.job.completions() for stream in started.streams]

    return await while_connected(request, wait())


async def all_vectors(
    request: Request, served: ServedModel, texts: Sequence[Sequence[int]], pooling: str
) -> list[np.ndarray]:
    """Return one vector per text. If one text fails, or the client goes away, the other texts end too."""
    deadline = served.engine.clock() + served.limits.deadline_seconds
    vectors: list[np.ndarray] = [np.empty(0, np.float32)] * len(texts)
    left = iter(enumerate(texts))

    async def embed_next() -> None:
        for number, tokens in left:
            vectors[number] = await served.engine.embed(tokens, pooling, deadline=deadline)

    async def embed_all() -> list[np.ndarray]:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(TEXTS_AT_ONCE, len(texts))):
                group.create_task(embed_next())
                await asyncio.sleep(0)  # many requests may come at once, and other clients get their turn
        return vectors

    try:
        return await while_connected(request, embed_all())
    except ExceptionGroup as failures:  # the first failure has ended the other texts
        error = failures.exceptions[0]
        if isinstance(error, QueueFull):
            raise busy(f"the server is busy: {error}") from None
        raise error from None


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


def usage(streams: Sequence[AnswerStream]) -> dict[str, int]:
    """Return the numbers of tokens of all prompts and answers, so far."""
    num_prompt_tokens = sum(len(s.job.prompt) for s in streams)
    return token_counts(num_prompt_tokens, sum(s.job.num_answer_tokens for s in streams))
