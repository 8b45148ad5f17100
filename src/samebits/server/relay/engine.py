"""What a server takes for its engine where others have it: requests are asked for, and go on when whoever answers dies.

Tokens depend on prompt, parameters, seed, sample and position alone, so another replica that is given what came so far
draws what would have come. It computes all of it again, as fast as a prompt, with all that depends on it: penalties,
formats, text held back for stop strings, hashes, receipts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import Protocol

import numpy as np

from samebits.engine.answer import FAILED
from samebits.engine.async_engine import QueueFull
from samebits.engine.job import DeadlinePassed, RequestFailed
from samebits.engine.request_options import NO_OPTIONS, RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.server.relay.ask import Ask, Lost
from samebits.server.relay.attempt import Attempt
from samebits.server.relay.job import RelayedJob
from samebits.server.relay.lines import Switchboard
from samebits.server.relay.stream import FIRST_PAUSE_SECONDS, MAX_FRUITLESS, Pauses, RelayStream
from samebits.server.relay.wire import CANCEL

SETTLE_SECONDS = 5.0  # for the last messages of a request that has returned, and for the return of one that has ended
DEADLINE_SECONDS = 1.0  # beyond the deadline, which replicas keep themselves while they live


class Upstream(Protocol):
    """Those who have engines. Both raise Lost where another may be asked, QueueFull where all have enough to do."""

    async def answer(self, ask: Ask) -> None:
        """Returns when the request has ended; its pieces go to ask.reply_to."""

    async def embed(self, tokens: list[int], pooling: str, plan: str, seconds_left: float | None) -> np.ndarray: ...


class RelayEngine:
    """The engines behind `upstream`, as one. For one event loop.

    plan        what the server was set up for: replicas of others do not answer
    resumes     whether an answer may go on elsewhere: not at fast numerics, where bits depend on the batch
    """

    failure: str | None = None

    def __init__(self, upstream: Upstream, board: Switchboard, plan: str, resumes: bool) -> None:
        self._upstream, self._board, self._plan, self._resumes = upstream, board, plan, resumes
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Future[None]] = set()
        self._is_closed = False
        self.num_resumed = 0  # answers that went on elsewhere

    @property
    def is_alive(self) -> bool:
        return not self._is_closed

    def clock(self) -> float:
        return time.monotonic()

    async def generate(
        self, prompt: Iterable[int], params: SamplingParams, options: RequestOptions = NO_OPTIONS
    ) -> RelayStream:
        """Start a request and return its stream once a replica has accepted it. Raise why none does.

        Priority, salt, deadline and grammar go to the replica, which makes masks of the grammar. The relay itself says
        which samples are to be made and what they have already.
        """
        job = RelayedJob(np.array(list(prompt), np.int32), params.with_seed(), self.clock())
        stream = RelayStream(job, self.clock)
        task = stream.task = asyncio.create_task(self._answer(stream, options))
        self._keep(task)
        waiting = asyncio.create_task(stream.accepted.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            waiting.cancel()
        if not stream.accepted.is_set():
            task.result()  # raises why
        return stream

    async def embed(self, tokens: Iterable[int], pooling: str, *, deadline: float | None = None) -> np.ndarray:
        """Return a text's vector. Raise DeadlinePassed if no replica has computed it in time."""
        ids, seconds_left = list(tokens), self._seconds_left(deadline)
        try:
            async with asyncio.timeout(None if seconds_left is None else seconds_left + DEADLINE_SECONDS):
                for _ in range(MAX_FRUITLESS):
                    try:
                        return await self._upstream.embed(ids, pooling, self._plan, self._seconds_left(deadline))
                    except Lost as error:
                        reason = str(error)
                        await asyncio.sleep(FIRST_PAUSE_SECONDS)
        except TimeoutError:
            raise DeadlinePassed("no replica embedded the text in time") from None
        raise RequestFailed(reason)

    def close(self) -> None:
        """Ends all requests, from any thread."""
        self._is_closed = True

        def end() -> None:
            for task in list(self._tasks):
                task.cancel()
            self._board.close()

        self._loop.call_soon_threadsafe(end)

    def _seconds_left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self.clock())

    def _keep(self, task: asyncio.Future[None]) -> None:
        """Holds it until it is done; nobody else may look at what it raises."""

        def drop(done: asyncio.Future[None]) -> None:
            self._tasks.discard(done)
            if not done.cancelled():
                done.exception()

        self._tasks.add(task)
        task.add_done_callback(drop)

    async def _answer(self, stream: RelayStream, options: RequestOptions) -> None:
        """One request from its first ask to its end; raises only what nobody accepted."""
        job, seconds_left = stream.job, self._seconds_left(options.deadline)
        try:
            async with asyncio.timeout(None if seconds_left is None else seconds_left + DEADLINE_SECONDS):
                await self._run(stream, options, tuple(range(job.params.n)))
        except TimeoutError:
            stream.cut("deadline")
            stream.accepted.set()
        except Exception as error:
            if not stream.accepted.is_set():
                raise
            job.error = str(error)
            stream.cut(FAILED)
        finally:
            stream.end()

    async def _run(self, stream: RelayStream, options: RequestOptions, samples: tuple[int, ...]) -> None:
        """Asks until these samples have ended."""
        job, pauses = stream.job, Pauses(stream)
        while unfinished := job.unfinished(samples):
            has_begun = any(job.token_ids(sample) for sample in unfinished)
            if has_begun and len(unfinished) > 1:  # each goes on from where it is
                await _all(self._run(stream, options, (sample,)) for sample in unfinished)
                return
            if has_begun:
                self.num_resumed += 1
            attempt = Attempt(job, unfinished, stream.give, stream.accept)
            try:
                await self._attempt(stream, options, attempt)
                return
            except QueueFull:
                if stream.edition is None:
                    raise
                await pauses.next()
            except Lost as error:
                if job.num_answer_tokens and not self._resumes:
                    raise RequestFailed(f"{error}; at fast numerics no other replica could go on") from None
                await pauses.after(error, attempt.was_accepted)

    async def _attempt(self, stream: RelayStream, options: RequestOptions, attempt: Attempt) -> None:
        """Asks once, and waits until that has ended."""
        job, samples = stream.job, attempt.samples
        number = self._board.add(attempt)
        ask = Ask(
            prompt=job.prompt,
            params=job.params,
            priority=options.priority,
            salt=options.salt,
            seconds_left=self._seconds_left(options.deadline),
            grammar=options.grammar,
            samples=samples,
            begun=job.token_ids(samples[0]) if len(samples) == 1 else (),
            plan=self._plan,
            edition=stream.edition,
            reply_to=self._board.reply_to,
            number=number,
        )
        call = asyncio.ensure_future(self._upstream.answer(ask))
        self._keep(call)
        try:
            await asyncio.wait({attempt.outcome, call}, return_when=asyncio.FIRST_COMPLETED)
            if not attempt.outcome.done():
                call.result()  # raises where it failed
                await asyncio.wait({attempt.outcome}, timeout=SETTLE_SECONDS)
            if not attempt.outcome.done():
                raise Lost("the end of its answer did not arrive")
            attempt.outcome.result()
        except asyncio.CancelledError:
            if attempt.line is not None:
                attempt.line.send([number, CANCEL])
            else:
                call.cancel()
            raise
        finally:
            self._board.drop(number)
            attempt.outcome.cancel()
            if not call.done():
                self._loop.call_later(SETTLE_SECONDS, call.cancel)  # a replica that hangs would keep it for ever


async def _all(works: Iterable[Awaitable[None]]) -> None:
    """All of them; the first failure ends the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
