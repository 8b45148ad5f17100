"""Connections from who answers to who asks, one for all requests between two processes."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import os
from collections.abc import Callable
from typing import Any, Protocol

from samebits.server.relay.ask import Lost, ReplyTo
from samebits.server.relay.line import Line
from samebits.server.relay.wire import CANCEL, SECRET_BYTES, Garbled

CONNECT_SECONDS = 10.0
HELLO_SECONDS = 10.0  # for a new connection to send the secret
MAX_STRANGERS = 64  # connections that have not sent it; one more closes the oldest


class Receiver(Protocol):
    """Whoever waits for the messages of one number. Both methods are called by the event loop and must not wait."""

    line: Line | None

    def take(self, kind: str, rest: list[Any]) -> None:
        """One message; Garbled where it is none."""

    def lose(self, why: str) -> None:
        """There will be no other."""


class Switchboard:
    """The asker's end: takes connections that know its secret, and hands their messages to who waits for them."""

    def __init__(self) -> None:
        self._secret = os.urandom(SECRET_BYTES)
        self._numbers = itertools.count(1)
        self._receivers: dict[int, Receiver] = {}
        self._lines: set[Line] = set()
        self._strangers: dict[Line, None] = {}  # in the order of their arrival
        self._server: asyncio.Server | None = None
        self.reply_to = ReplyTo("", 0, b"")

    async def open(self, host: str) -> None:
        """Listens on a free port of this address."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Guest(self), host, 0)
        self.reply_to = ReplyTo(host, self._server.sockets[0].getsockname()[1], self._secret)

    def add(self, receiver: Receiver) -> int:
        """The number under which it gets messages, until it is dropped."""
        number = next(self._numbers)
        self._receivers[number] = receiver
        return number

    def drop(self, number: int) -> None:
        self._receivers.pop(number, None)

    def meet(self, line: Line) -> None:
        """Take in a connection that has not sent the secret yet. If there are too many, close the oldest of them."""
        self._strangers[line] = None
        if len(self._strangers) > MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.close()

    def accept(self, line: Line, secret: bytes) -> bool:
        """Return whether this is the secret. From then on the connection may send messages."""
        if not hmac.compare_digest(secret, self._secret):
            return False
        self._strangers.pop(line, None)
        self._lines.add(line)
        return True

    def take(self, line: Line, message: list[Any]) -> None:
        number, kind, *rest = message
        receiver = self._receivers.get(number)
        if receiver is None:  # it went away meanwhile
            line.send([number, CANCEL])
            return
        receiver.line = line
        receiver.take(kind, rest)

    def lose(self, line: Line) -> None:
        self._lines.discard(line)
        self._strangers.pop(line, None)
        for receiver in [r for r in self._receivers.values() if r.line is line]:
            receiver.lose("its connection has ended")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for line in (*self._lines, *self._strangers):
            line.close()


class _Guest(Line):
    """A connection whose first bytes must be the secret, within HELLO_SECONDS."""

    def __init__(self, board: Switchboard) -> None:
        super().__init__(board.take, board.lose)
        self._board, self._head, self._is_known = board, b"", False
        self._hello: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._hello = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.close)
        self._board.meet(self)

    def data_received(self, data: bytes) -> None:
        if not self._is_known:
            self._head += data
            if len(self._head) < SECRET_BYTES:
                return
            secret, data = self._head[:SECRET_BYTES], self._head[SECRET_BYTES:]
            if not self._board.accept(self, secret):
                self.close()
                return
            self._is_known, self._head = True, b""
            self._stop_waiting()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._hello is not None:
            self._hello.cancel()


class Lines:
    """The answerer's end: one connection to each asker, made when it first asks."""

    def __init__(self, on_cancel: Callable[[ReplyTo, int], None], on_lost: Callable[[ReplyTo], None]) -> None:
        self._on_cancel, self._on_lost = on_cancel, on_lost
        self._lines: dict[ReplyTo, asyncio.Task[Line]] = {}

    async def to(self, reply_to: ReplyTo) -> Line:
        """The line there; Lost where nobody takes it."""
        task = self._lines.get(reply_to)
        if task is None:
            task = self._lines[reply_to] = asyncio.create_task(self._connect(reply_to))
        try:
            line = await asyncio.shield(task)
        except (OSError, TimeoutError) as error:
            if self._lines.get(reply_to) is task:
                del self._lines[reply_to]
            raise Lost(f"{reply_to.host}:{reply_to.port} takes no connection: {error}") from None
        except asyncio.CancelledError:
            if task.cancelled():
                raise Lost("the replica is being stopped") from None
            raise
        if line.is_lost:
            raise Lost(f"{reply_to.host}:{reply_to.port} has closed its connection")
        return line

    async def _connect(self, reply_to: ReplyTo) -> Line:
        def take(_: Line, message: list[Any]) -> None:
            if message[1] != CANCEL:
                raise Garbled(f"{message[1]!r} from who asks")
            self._on_cancel(reply_to, message[0])

        def lose(_: Line) -> None:
            self._lines.pop(reply_to, None)
            self._on_lost(reply_to)

        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(lambda: Line(take, lose), reply_to.host, reply_to.port)
        transport, line = await asyncio.wait_for(connecting, CONNECT_SECONDS)
        transport.write(reply_to.secret)
        return line

    def close(self) -> None:
        for task in list(self._lines.values()):
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                task.result().close()
