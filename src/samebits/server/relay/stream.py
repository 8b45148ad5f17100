"""A relayed request's pieces on their way to whoever asked for them, and how long it waits between two asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from samebits.engine.answer import Piece
from samebits.engine.job import RequestFailed
from samebits.server.relay.ask import Lost, WrongEdition
from samebits.server.relay.job import RelayedJob

MAX_FRUITLESS = 8  # replicas that may die under a request one after another without a token of it
ABSENT_SECONDS = 120.0  # for which nobody may take a request that is asked for
EDITION_SECONDS = 15.0  # for which an answer looks for a replica that computes the bits it was begun with
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 1.0


class RelayStream:
    """One caller's answers: (sample, piece) as they come; iterate once. `close` ends it early, at any time."""

    def __init__(self, job: RelayedJob, clock: Callable[[], float]) -> None:
        self.job, self._clock = job, clock
        self.edition: str | None = None  # of the replicas whose bits the answer has
        self.accepted = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[tuple[int, Piece] | None] = asyncio.Queue()
        self._give: Callable[[tuple[int, Piece] | None], None] = self._events.put_nowait

    def deliver_to(self, give: Callable[[tuple[int, Piece] | None], None]) -> None:
        """See engine/async_engine.py."""
        self._give = give
        while not self._events.empty():
            give(self._events.get_nowait())

    async def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]:
        """RequestFailed where the request failed. Leaving the loop early cancels it."""
        try:
            while (event := await self._events.get()) is not None:
                yield event
        finally:
            self.close()
        self.job.check()

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def accept(self, edition: str) -> None:
        self.edition = edition
        self.accepted.set()

    def give(self, sample: int, piece: Piece) -> None:
        self.job.take(sample, piece, self._clock())
        self._give((sample, piece))

    def cut(self, reason: str) -> None:
        """Ends what is not finished."""
        for sample in self.job.unfinished(range(self.job.params.n)):
            self.give(sample, Piece(None, "", finish_reason=reason))

    def end(self) -> None:
        self._give(None)


class Pauses:
    """How long a request waits before it asks again, and when it gives up."""

    def __init__(self, stream: RelayStream) -> None:
        self._stream, self._num_tokens = stream, 0
        self._num_fruitless, self._seconds = 0, FIRST_PAUSE_SECONDS
        self._edition_until: float | None = None
        self._taken_until = time.monotonic() + ABSENT_SECONDS

    async def after(self, error: Lost, was_taken: bool) -> None:
        """The next pause; RequestFailed where there is no use in another ask.

        was_taken   whether whoever was lost had begun with it
        """
        now, num_tokens = time.monotonic(), self._stream.job.num_answer_tokens
        if isinstance(error, WrongEdition):
            self._edition_until = self._edition_until or now + EDITION_SECONDS
            if now > self._edition_until:
                raise RequestFailed(f"the replicas were replaced by others: {error}")
        elif was_taken:
            self._num_fruitless = 0 if num_tokens > self._num_tokens else self._num_fruitless + 1
            self._num_tokens, self._taken_until = num_tokens, now + ABSENT_SECONDS
            if self._num_fruitless >= MAX_FRUITLESS:
                raise RequestFailed(f"{self._num_fruitless} replicas were lost without a token: {error}")
            if not self._num_fruitless:
                self._seconds = FIRST_PAUSE_SECONDS
                return
        elif now > self._taken_until:
            raise RequestFailed(f"no replica took the request for {ABSENT_SECONDS:g} seconds: {error}")
        await self.next()

    async def next(self) -> None:
        await asyncio.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_SECONDS)
