"""An engine for many callers: it steps on a thread of its own, answers stream to asyncio.

Callers only leave requests and cancellations in a queue, which the thread takes between steps; so the engine itself
needs no lock, and no caller can disturb a step.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samebits.core.errors import SamebitsError
from samebits.engine.answer import Completion, Piece
from samebits.engine.engine import Engine
from samebits.engine.faults import described, reason_of
from samebits.engine.job import Generation, Job, RequestFailed
from samebits.engine.request_options import NO_OPTIONS, RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_jobs import Score


class QueueFull(SamebitsError):
    """Too many requests wait; a later try may find room."""


IDLE_SECONDS = 0.05  # how long a closing engine takes to notice, at most


@dataclass(eq=False)
class Stream:
    """One caller's answers: (sample, piece) as they come; iterate once. `close` ends it early, at any time."""

    engine: AsyncEngine
    job: Generation
    _loop: asyncio.AbstractEventLoop
    _pieces: asyncio.Queue[tuple[int, Piece] | None] = field(default_factory=asyncio.Queue)
    _give: Callable[[tuple[int, Piece] | None], None] | None = None

    def deliver_to(self, give: Callable[[tuple[int, Piece] | None], None]) -> None:
        """Call `give` on the loop with each (sample, piece), and with None at the end, instead of being iterated.

        `give` must not raise. Whoever takes None calls `job.check`.
        """
        self._give = give
        while not self._pieces.empty():
            give(self._pieces.get_nowait())

    async def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]:
        """RequestFailed where the request failed. Leaving the loop early cancels it."""
        try:
            while (event := await self._pieces.get()) is not None:
                yield event
        finally:
            self.close()
        self.job.check()

    def close(self) -> None:
        """Cancels what is not done."""
        if not self.job.is_done:
            self.engine.cancel(self.job)

    async def completions(self) -> list[Completion]:
        """All answers, when they are finished."""
        async for _ in self:
            pass
        return self.job.completions()


def _deliver(deliveries: list[tuple[Stream, list[tuple[int, Piece] | None]]]) -> None:
    """Hand each stream its pieces, on the loop of all of them."""
    for stream, events in deliveries:
        give = stream._give or stream._pieces.put_nowait
        for event in events:
            give(event)


@dataclass(frozen=True)
class _Awaited:
    """A job without pieces, and the future of the caller who waits for its end."""

    job: Job
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[None]

    def tell(self) -> None:
        """Let the caller go on. Raise RuntimeError if its loop is closed."""
        self.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class AsyncEngine:
    """Runs an engine on its own thread until `close`. Once the thread has died, every call says why.

    max_waiting   requests that may wait for their turn; more are refused with QueueFull
    """

    def __init__(self, engine: Engine, max_waiting: int | None = None) -> None:
        self.engine, self._max_waiting = engine, max_waiting
        self._inbox: queue.SimpleQueue[Callable[[Engine], None]] = queue.SimpleQueue()
        self._streams: list[Stream] = []
        self._awaited: list[_Awaited] = []
        self._is_closing = threading.Event()
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._work, name="samebits-engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._is_closing.is_set()

    def clock(self) -> float:
        """The engine's clock, in seconds."""
        return self.engine.clock()

    def cancel(self, job: Job) -> None:
        """Ends a job between two steps, from any thread; a closed engine has ended all it had."""

        def act(engine: Engine) -> None:
            if not self._is_closing.is_set():
                engine.cancel(job)

        self._inbox.put(act)

    async def generate(
        self, prompt: Iterable[int], params: SamplingParams, options: RequestOptions = NO_OPTIONS
    ) -> Stream:
        """Start a request and return its stream. Raise BadInput if it can never run."""
        loop = asyncio.get_running_loop()

        def start(engine: Engine) -> Stream:
            stream = Stream(self, engine.generate(prompt, params, options), loop)
            self._streams.append(stream)
            return stream

        stream: Stream = await self._ask(self._admitted(start), Stream.close)
        return stream

    async def score(self, tokens: Iterable[int], **options: Any) -> Score:
        """Log-probabilities of a text; options as Engine.score's."""
        return (await self._finished(lambda engine: engine.score(tokens, **options))).score()

    async def embed(self, tokens: Iterable[int], pooling: str, *, deadline: float | None = None) -> np.ndarray:
        """Return a text's vector, as Engine.embed computes it. Raise DeadlinePassed if that takes too long."""
        return (await self._finished(lambda engine: engine.embed(tokens, pooling, deadline=deadline))).vector()

    async def _finished(self, start: Callable[[Engine], Any]) -> Any:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def begin(engine: Engine) -> Any:
            job = start(engine)
            self._awaited.append(_Awaited(job, loop, ended))
            return job

        job = await self._ask(self._admitted(begin), self.cancel)
        try:
            await ended
        finally:
            if not job.is_done:
                self.cancel(job)
        return job

    def _admitted(self, start: Callable[[Engine], Any]) -> Callable[[Engine], Any]:
        """`start`, or QueueFull where too many wait already."""

        def checked(engine: Engine) -> Any:
            if self._max_waiting is not None and engine.scheduler.num_waiting >= self._max_waiting:
                raise QueueFull(f"{engine.scheduler.num_waiting} requests wait already")
            return start(engine)

        return checked

    async def look(self, see: Callable[[Engine], Any]) -> Any:
        """What `see` finds between two steps."""
        return await self._ask(see)

    async def drain(self) -> None:
        """Waits until every request that was started has ended."""
        while not await self._ask(lambda engine: engine.is_idle):
            await asyncio.sleep(IDLE_SECONDS)

    def close(self) -> None:
        """Ends all requests and the thread; nothing for an engine that is closed."""
        self._is_closing.set()
        self._thread.join()

    async def _ask(self, action: Callable[[Engine], Any], undo: Callable[[Any], None] | None = None) -> Any:
        """What `action` gives, called between two steps.

        Where the caller is cancelled meanwhile, `action` is not called, or `undo` gets what it gave.
        """
        answer: Future[Any] = Future()

        def act(engine: Engine) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                if self._is_closing.is_set():
                    raise RequestFailed(self.failure or "the engine is closed")
                answer.set_result(action(engine))
            except Exception as error:
                answer.set_exception(error)
            except BaseException as error:  # a panic of some library's: no event loop could take it
                answer.set_exception(RequestFailed(reason_of(error)))

        self._inbox.put(act)
        if not self.is_alive and answer.cancel():  # nobody may be left to look into the inbox
            raise RequestFailed(self.failure or "the engine is closed")
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            if undo is not None and not answer.cancel():
                answer.add_done_callback(lambda done: None if done.exception() else undo(done.result()))
            raise

    def _work(self) -> None:
        try:
            while not self._is_closing.is_set():
                self._take_inbox(wait=self.engine.is_idle)
                self.engine.step()
                self._hand_out()
            self.engine.cancel_all()
        except BaseException as error:
            is_told = isinstance(error, RequestFailed)  # the engine says itself that it stopped
            self.failure = described(error) if is_told else f"the engine stopped: {described(error)}"
            jobs: list[Job] = [*(s.job for s in self._streams), *(a.job for a in self._awaited)]
            for job in jobs:  # the engine itself can no longer be trusted to
                job.fail(self.failure)
        finally:
            self._is_closing.set()
            self._hand_out()
            self._take_inbox(wait=False)

    def _take_inbox(self, wait: bool) -> None:
        try:
            action = self._inbox.get(wait, IDLE_SECONDS) if wait else self._inbox.get_nowait()
            while True:
                action(self.engine)
                action = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _hand_out(self) -> None:
        """Move new pieces to the callers' loops, one call per loop and step, and tell who waits for a job's end."""
        ended = False
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Stream, list[tuple[int, Piece] | None]]]] = {}
        for stream in self._streams:
            job = stream.job
            events: list[tuple[int, Piece] | None] = list(job.events)
            job.events.clear()
            if job.is_done:
                events.append(None)
                ended = True
            if events:
                by_loop.setdefault(stream._loop, []).append((stream, events))
        for loop, deliveries in by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver, deliveries)
            except RuntimeError:  # the callers' loop is closed: nobody is left to tell
                for stream, _ in deliveries:
                    self.engine.cancel(stream.job)
        if ended:
            self._streams = [s for s in self._streams if not s.job.is_done]
        if any(awaited.job.is_done for awaited in self._awaited):
            for awaited in self._awaited:
                if awaited.job.is_done:
                    with suppress(RuntimeError):  # the caller's loop is closed: nobody is left to tell
                        awaited.tell()
            self._awaited = [awaited for awaited in self._awaited if not awaited.job.is_done]
