"""Two replicas in this process behind a relaying engine, over real connections; either can be lost at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from samebits import LLM
from samebits.engine.answer import Completion, Piece
from samebits.engine.request_options import RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.server.engines import Answering, AnswerStream
from samebits.server.limits import Limits
from samebits.server.model import ServedModel
from samebits.server.relay.answerer import Answerer
from samebits.server.relay.ask import Ask, Lost
from samebits.server.relay.engine import RelayEngine
from samebits.server.relay.line import Line
from samebits.server.relay.lines import Switchboard
from samebits.server.relay.stream import RelayStream

PLAN = "plan"


class Pace:
    """Keeps answers from running ahead of who reads them: else an answer might be over before its replica is lost."""

    def __init__(self) -> None:
        self._may_tell, self._is_held = list[asyncio.Event](), False

    def hold(self) -> None:
        """Streams that begin from here on tell of nothing."""
        self._is_held = True

    def new_turn(self) -> asyncio.Event:
        """Of one stream: set whenever it may tell of one more piece."""
        may_tell = asyncio.Event()
        if not self._is_held:
            may_tell.set()
        self._may_tell.append(may_tell)
        return may_tell

    async def read(self, stream: RelayStream) -> AsyncIterator[tuple[int, Piece]]:
        """The stream's pieces; after each, every replica may tell of one more."""
        async for event in stream:
            yield event
            self.go_on()

    def go_on(self) -> None:
        for may_tell in self._may_tell:
            may_tell.set()


class PacedStream:
    def __init__(self, stream: AnswerStream, num_begun: int, may_tell: asyncio.Event) -> None:
        self._stream, self._num_begun, self._may_tell = stream, num_begun, may_tell

    @property
    def job(self) -> Answering:
        return self._stream.job

    async def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]:
        num_told = 0
        async for event in self._stream:
            num_told += 1
            if num_told > self._num_begun:  # those before were read already
                await self._may_tell.wait()
                self._may_tell.clear()
            yield event

    def close(self) -> None:
        self._stream.close()


class PacedAnswerer(Answerer):
    def __init__(self, served: ServedModel, edition: str, pace: Pace) -> None:
        super().__init__(served, PLAN, edition)
        self._pace, self._num_begun = pace, dict[int, int]()

    async def answer(self, ask: Ask) -> None:
        self._num_begun[ask.number] = len(ask.begun)
        await super().answer(ask)

    async def _tell(self, number: int, line: Line, stream: AnswerStream) -> None:
        await super()._tell(number, line, PacedStream(stream, self._num_begun[number], self._pace.new_turn()))


class Replica:
    """An engine and what answers with it. `lose` is what others see of a process that is killed."""

    def __init__(self, served: ServedModel, edition: str, pace: Pace) -> None:
        self.served, self._edition, self._pace = served, edition, pace
        self.recover()

    def lose(self) -> None:
        self.is_lost = True
        self.answerer.close()

    def recover(self) -> None:
        """Another process in its place."""
        self.answerer, self.is_lost = PacedAnswerer(self.served, self._edition, self._pace), False


class Turns:
    """Asks one replica after the other."""

    def __init__(self, replicas: list[Replica], pace: Pace) -> None:
        self.replicas, self.asks = replicas, list[Ask]()
        self.read, self.go_on, self.hold = pace.read, pace.go_on, pace.hold

    def _next(self) -> Replica:
        return self.replicas[len(self.asks) % len(self.replicas)]

    async def answer(self, ask: Ask) -> None:
        replica = self._next()
        self.asks.append(ask)
        if replica.is_lost:
            raise Lost("it is gone")
        answerer = replica.answerer
        await answerer.answer(ask)
        if replica.answerer is not answerer or replica.is_lost:
            raise Lost("it died")

    async def embed(self, tokens: list[int], pooling: str, plan: str, seconds_left: float | None) -> np.ndarray:
        engine = self._next().served.engine
        deadline = None if seconds_left is None else engine.clock() + seconds_left
        return await engine.embed(tokens, pooling, deadline=deadline)


@asynccontextmanager
async def relayed(
    path: Path, editions: tuple[str, ...] = ("a", "a"), limits: Limits | None = None, **llm: Any
) -> AsyncIterator[tuple[RelayEngine, Turns]]:
    """An engine of replicas of these editions, and who routes to them."""
    chosen = {"context_len": 512, "threads": 1, **llm}
    replicas, pace = [], Pace()
    for edition in editions:
        served = ServedModel("tiny", limits or Limits(), False)
        await served.load(lambda: LLM(path, **chosen), path, None)
        replicas.append(Replica(served, edition, pace))
    board, turns = Switchboard(), Turns(replicas, pace)
    await board.open("127.0.0.1")
    engine = RelayEngine(turns, board, PLAN, resumes=True)
    try:
        yield engine, turns
    finally:
        engine.close()
        for replica in replicas:
            replica.served.close()


async def plain(turns: Turns, prompt: list[int], params: SamplingParams, **options: Any) -> list[Completion]:
    """The answers of one of the engines, without any relaying."""
    return await (
        await turns.replicas[0].served.engine.generate(prompt, params, RequestOptions(**options))
    ).completions()
