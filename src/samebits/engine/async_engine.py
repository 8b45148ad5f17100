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
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samebits.core.errors import SamebitsError
from samebits.engine.answer import Completion, Piece
from samebits.engine.engine import Engine
from samebits.engine.job import Generation, RequestFailed
from samebits.engine.rows import Score
from samebits.engine.sampling import SamplingParams


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
            self.engine.post(lambda engine: engine.cancel(self.job))

    async def completions(self) -> list[Completion]:
        """All answers, when they are finished."""
        async for _ in self:
            pass
        return self.job.completions()

    def _deliver(self, events: list[tuple[int, Piece] | None]) -> None:
        for event in events:
            self._pieces.put_nowait(event)


class AsyncEngine:
    """Runs an engine on its own thread until `close`. Once the thread has died, every call says why.

    max_waiting   requests that may wait for their turn; more are refused with QueueFull
    """

    def __init__(self, engine: Engine, max_waiting: int | None = None) -> None:
        self.engine, self._max_waiting = engine, max_waiting
        self._inbox: queue.SimpleQueue[Callable[[Engine], None]] = queue.SimpleQueue()
        self._streams: list[Stream] = []
        self._is_closing = threading.Event()
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._work, name="samebits-engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._is_closing.is_set()

    def post(self, action: Callable[[Engine], None]) -> None:
        """Leaves something to be done between two steps."""
        self._inbox.put(action)

    async def generate(self, prompt: Iterable[int], params: SamplingParams, **options: Any) -> Stream:
        """Starts a request and returns its stream; BadInput where it can never run. Options as Engine.generate's."""
        loop = asyncio.get_running_loop()

        def start(engine: Engine) -> Stream:
            stream = Stream(self, engine.generate(prompt, params, **options), loop)
            self._streams.append(stream)
            return stream

        return await self._ask(self._admitted(start))

    async def score(self, tokens: Iterable[int], **options: Any) -> Score:
        """Log-probabilities of a text; options as Engine.score's."""
        return (await self._finished(lambda engine: engine.score(tokens, **options))).score()

    async def embed(self, tokens: Iterable[int], pooling: str) -> np.ndarray:
        """A text's vector, as Engine.embed's."""
        return (await self._finished(lambda engine: engine.embed(tokens, pooling))).vector()

    async def _finished(self, start: Callable[[Engine], Any]) -> Any:
        job = await self._ask(self._admitted(start))
        try:
            while not job.is_done:
                await self._ask(lambda _: None)  # answered after the next step
        finally:
            self.post(lambda engine: engine.cancel(job))
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

    async def _ask(self, action: Callable[[Engine], Any]) -> Any:
        if not self.is_alive:
            raise RequestFailed(self.failure or "the engine is closed")
        answer: Future[Any] = Future()

        def act(engine: Engine) -> None:
            try:
                answer.set_result(action(engine))
            except Exception as error:
                answer.set_exception(error)

        self.post(act)
        return await asyncio.wrap_future(answer)

    def _work(self) -> None:
        try:
            while not self._is_closing.is_set():
                self._take_inbox(wait=self.engine.is_idle)
                self.engine.step()
                self._hand_out()
        except BaseException as error:
            self.failure = f"the engine stopped: {type(error).__name__}: {error}"
        finally:
            self._is_closing.set()
            self._take_inbox(wait=False)
            for stream in self._streams:
                stream.job.error = stream.job.error or self.failure
                self.engine.cancel(stream.job)
            self._hand_out()

    def _take_inbox(self, wait: bool) -> None:
        try:
            action = self._inbox.get(wait, IDLE_SECONDS) if wait else self._inbox.get_nowait()
            while True:
                action(self.engine)
                action = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _hand_out(self) -> None:
        """Moves new pieces to the callers' loops: one call a stream and step."""
        ended = False
        for stream in self._streams:
            job = stream.job
            events: list[tuple[int, Piece] | None] = list(job.events)
            job.events.clear()
            if job.is_done:
                events.append(None)
                ended = True
            if events:
                try:
                    stream._loop.call_soon_threadsafe(stream._deliver, events)
                except RuntimeError:  # the caller's loop is closed: nobody is left to tell
                    self.engine.cancel(job)
        if ended:
            self._streams = [s for s in self._streams if not s.job.is_done]
