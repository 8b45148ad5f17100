"""Whoever asks a replica may leave or stop reading at any time: no job, page, process, connection or task stays."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samebits import LLM
from samebits.engine.sampling import SamplingParams
from samebits.receipts.record import Grammar
from samebits.server.limits import Limits
from samebits.server.model import ServedModel
from samebits.server.relay import engine as relay_engine
from samebits.server.relay import line as relay_line
from samebits.server.relay import lines as relay_lines
from samebits.server.relay.answerer import Answerer
from samebits.server.relay.ask import Ask, Lost, ReplyTo
from samebits.server.relay.engine import RelayEngine
from samebits.server.relay.lines import Switchboard
from samebits.server.relay.wire import CANCEL, SECRET_BYTES, Unpacker, pack

PLAN, EDITION, NUMBER = "plan", "edition", 7
PROMPT = np.arange(5, 45, dtype=np.int32)
LONG = SamplingParams(max_tokens=400, temperature=0.0, seed=1, ignore_eos=True, logprobs=8)
SECONDS = 60.0
ENDED = (ConnectionError, asyncio.IncompleteReadError)


class HeldModel(ServedModel):
    """A model that prepares receipts once it is let: until then an ask for one is being started."""

    def hold(self) -> None:
        self.is_held, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def prepare_receipts(self) -> None:
        self.is_held.set()
        await self.may_go_on.wait()
        await super().prepare_receipts()


class Asker:
    """The asker's end of a real socket, which reads only when `messages` is called."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listening.setblocking(False)
        self._unpacker, self._stream = Unpacker(), self._listening
        host, port = self._listening.getsockname()
        self.reply_to = ReplyTo(host, port, os.urandom(SECRET_BYTES))

    async def hear_hello(self) -> None:
        loop = asyncio.get_running_loop()
        self._stream, _ = await loop.sock_accept(self._listening)  # until then it is the listening socket
        self._stream.setblocking(False)
        assert await loop.sock_recv(self._stream, SECRET_BYTES) == self.reply_to.secret

    async def messages(self) -> list[list[Any]]:
        data = await asyncio.get_running_loop().sock_recv(self._stream, 1 << 12)
        return list(self._unpacker.feed(data))

    def cancel(self) -> None:
        self._stream.send(pack([NUMBER, CANCEL]))

    def leave(self) -> None:
        self._stream.close()
        self._listening.close()


@asynccontextmanager
async def answering(path: Path) -> AsyncIterator[tuple[HeldModel, Answerer]]:
    """A replica's side, of which nothing may be left at the end but what was there at its beginning."""
    served = HeldModel("tiny", Limits(), False)
    await served.load(lambda: LLM(path, context_len=512, threads=1, max_sequences=4), path, None)
    served.hold()
    answerer, before = Answerer(served, PLAN, EDITION), asyncio.all_tasks()
    try:
        yield served, answerer
        async with asyncio.timeout(SECONDS):
            while left := what_is_left(served, answerer, before):
                await asyncio.sleep(0.01)
        assert not left
    finally:
        answerer.close()
        served.close()


def what_is_left(served: ServedModel, answerer: Answerer, before: set[asyncio.Task[Any]]) -> list[Any]:
    engine, followers = served.own.engine, served.grammars._followed
    left: list[Any] = [task for task in asyncio.all_tasks() - before if not task.done()]
    left += [] if engine.is_idle and engine.scheduler.pages.num_used == 0 else ["a job or its pages"]
    left += [follower for follower in followers if not follower.is_ended]
    return left + list(answerer._under_way) + list(answerer._lines._lines)


def ask_for(asker: Asker, params: SamplingParams = LONG, grammar: Grammar | None = None) -> Ask:
    return Ask(PROMPT, params, 0, b"", None, grammar, (0,), (), PLAN, None, asker.reply_to, NUMBER)


def play(path: Path, scene: Callable[[HeldModel, Answerer, Asker], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        asker = Asker()
        try:
            async with answering(path) as (served, answerer), asyncio.timeout(SECONDS):
                await scene(served, answerer, asker)
                asker.leave()
        finally:
            asker.leave()

    asyncio.run(main())


def test_who_left_before_the_start_is_not_answered(model_path: Path) -> None:
    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        asker.leave()
        with pytest.raises(Lost, match="takes no connection"):
            await answerer.answer(ask_for(asker))

    play(model_path, scene)


@pytest.mark.parametrize("grammar", [None, Grammar("regex", "[0-9]{300}")], ids=["plain", "grammar"])
@pytest.mark.parametrize("act", [Asker.leave, Asker.cancel], ids=["leaves", "cancels"])
def test_who_leaves_during_the_start_is_not_answered(
    model_path: Path, act: Callable[[Asker], None], grammar: Grammar | None
) -> None:
    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        ask = ask_for(asker, replace(LONG, receipt=True), grammar)
        answer = asyncio.create_task(answerer.answer(ask))
        await asker.hear_hello()
        await served.is_held.wait()
        act(asker)
        await answer  # while its start is held
        served.may_go_on.set()
        assert served.own.engine.is_idle

    play(model_path, scene)


@pytest.mark.parametrize("grammar", [None, Grammar("regex", "[0-9]{300}")], ids=["plain", "grammar"])
@pytest.mark.parametrize("act", [Asker.leave, Asker.cancel], ids=["leaves", "cancels"])
def test_who_leaves_in_mid_stream_ends_the_answer(
    model_path: Path, act: Callable[[Asker], None], grammar: Grammar | None
) -> None:
    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        answer = asyncio.create_task(answerer.answer(ask_for(asker, LONG, grammar)))
        await asker.hear_hello()
        kinds: list[str] = []
        while "piece" not in kinds:
            kinds += [message[1] for message in await asker.messages()]
        act(asker)
        await answer

    play(model_path, scene)


def test_a_call_that_is_cancelled_starts_nothing(model_path: Path) -> None:
    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        answer = asyncio.create_task(answerer.answer(ask_for(asker, replace(LONG, receipt=True))))
        await asker.hear_hello()
        await served.is_held.wait()
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        served.may_go_on.set()

    play(model_path, scene)


def test_who_reads_nothing_is_cut_off(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_line, "SEND_BUFFER_BYTES", 4096)
    monkeypatch.setattr(relay_line, "STALL_SECONDS", 0.05)

    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        answer = asyncio.create_task(answerer.answer(ask_for(asker)))
        await asker.hear_hello()
        await answer
        while answerer._lines._lines:  # the asker is still there
            await asyncio.sleep(0.01)

    play(model_path, scene)


def test_bytes_that_are_being_written_count_as_written() -> None:
    """The transport says within `write` that too much waits: counted after it, those bytes would pass for read."""
    counts: list[int] = []

    class Watched(relay_line.Line):
        def _watch(self) -> None:
            counts.append(self._num_read())

    async def main() -> None:
        asker, loop = Asker(), asyncio.get_running_loop()
        where = asker.reply_to

        def make() -> relay_line.Line:
            return Watched(lambda *_: None, lambda *_: None)

        transport, line = await loop.create_connection(make, where.host, where.port)
        line.send([NUMBER, "x" * (8 << 20)])
        while not counts:
            await asyncio.sleep(0)
        transport.abort()
        asker.leave()

    asyncio.run(main())
    assert 0 <= counts[0] < 8 << 20


def test_who_reads_too_little_is_cut_off(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_line, "SEND_BUFFER_BYTES", 4096)
    monkeypatch.setattr(relay_line, "MAX_UNREAD_BYTES", 20_000)

    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        answer = asyncio.create_task(answerer.answer(ask_for(asker)))
        await asker.hear_hello()
        await answer
        while answerer._lines._lines:
            await asyncio.sleep(0.01)

    play(model_path, scene)


def test_who_reads_slowly_gets_the_answer(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bytes are read between any two looks, so the connection stays."""
    monkeypatch.setattr(relay_line, "SEND_BUFFER_BYTES", 4096)
    monkeypatch.setattr(relay_line, "STALL_SECONDS", 0.5)

    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        answer = asyncio.create_task(answerer.answer(ask_for(asker, replace(LONG, max_tokens=200))))
        await asker.hear_hello()
        kinds: list[str] = []
        while "ended" not in kinds:
            kinds += [message[1] for message in await asker.messages()]
            await asyncio.sleep(0.002)
        assert kinds.count("piece") >= 200
        await answer

    play(model_path, scene)


def test_a_replica_that_is_stopped_leaves_no_connection_under_way(model_path: Path) -> None:
    """The connection is being made when the replica lets go of all who ask."""

    async def scene(served: HeldModel, answerer: Answerer, asker: Asker) -> None:
        answer = asyncio.create_task(answerer.answer(ask_for(asker)))
        await asyncio.sleep(0)
        answerer.close()
        with pytest.raises(Lost):
            await answer
        answerer._lines._lines.clear()

    play(model_path, scene)


async def stranger(board: Switchboard, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(board.reply_to.host, board.reply_to.port)
    writer.write(data)
    return reader, writer


@pytest.mark.parametrize("num_bytes", [0, 1, SECRET_BYTES - 1])
def test_who_never_says_hello_is_sent_away(num_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_lines, "HELLO_SECONDS", 0.05)

    async def main() -> None:
        board = Switchboard()
        await board.open("127.0.0.1")
        async with asyncio.timeout(SECONDS):
            reader, writer = await stranger(board, board.reply_to.secret[:num_bytes])
            known, friend = await stranger(board, board.reply_to.secret)
            with pytest.raises(ENDED):
                await reader.readexactly(1)
            await asyncio.sleep(0.1)  # who said hello in time may be silent for longer
            assert len(board._lines) == 1
            assert not board._strangers
            board.close()
            with pytest.raises(ENDED):
                await known.readexactly(1)
        writer.close()
        friend.close()

    asyncio.run(main())


def test_strangers_are_limited_and_go_with_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_lines, "MAX_STRANGERS", 3)

    async def main() -> None:
        board = Switchboard()
        await board.open("127.0.0.1")
        async with asyncio.timeout(SECONDS):
            strangers = []
            for _ in range(10):
                strangers.append(await stranger(board))
                await asyncio.sleep(0.01)
                assert len(board._strangers) <= 3
            for reader, _ in strangers[:7]:
                with pytest.raises(ENDED):
                    await reader.readexactly(1)
            assert len(board._strangers) == 3
            board.close()
            while board._strangers:
                await asyncio.sleep(0.01)
        for _, writer in strangers:
            writer.close()

    asyncio.run(main())


def test_a_replica_that_never_returns_costs_the_asker_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has answered and hangs: the call to it is cancelled, as is one that is lost."""
    monkeypatch.setattr(relay_engine, "SETTLE_SECONDS", 0.01)

    class Hanging:
        async def answer(self, ask: Ask) -> None:
            _, writer = await asyncio.open_connection(ask.reply_to.host, ask.reply_to.port)
            piece = [ask.number, "piece", 0, 5, "a", None, [], "length"]
            for message in ([ask.number, "accepted", EDITION], piece, [ask.number, "ended", None]):
                writer.write(ask.reply_to.secret * (message[1] == "accepted") + pack(message))
            try:
                await asyncio.Event().wait()
            finally:
                writer.close()

        async def embed(self, tokens: list[int], pooling: str, plan: str, seconds_left: float | None) -> np.ndarray:
            raise Lost("it has no vectors")

    async def main() -> None:
        board = Switchboard()
        await board.open("127.0.0.1")
        engine = RelayEngine(Hanging(), board, PLAN, resumes=True)
        async with asyncio.timeout(SECONDS):
            stream = await engine.generate(PROMPT.tolist(), LONG)
            assert [piece.token_id async for _, piece in stream] == [5]
            while engine._tasks or board._lines or board._receivers:
                await asyncio.sleep(0.01)
        engine.close()

    asyncio.run(main())
