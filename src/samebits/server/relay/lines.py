"""Connections from who answers to who asks, one for all requests between two processes."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import os
from collections.abc import Callable
from typing import Any, Protocol, cast

from samebits.core.printable import printable
from samebits.server.relay.ask import Lost, ReplyTo
from samebits.server.relay.wire import CANCEL, SECRET_BYTES, Garbled, Unpacker, pack

log = logging.getLogger("samebits.server")
CONNECT_SECONDS = 10.0


class Line(asyncio.Protocol):
    """One end of a connection. Messages of one turn of the event loop leave together."""

    def __init__(self, on_message: Callable[[Line, list[Any]], None], on_lost: Callable[[Line], None]) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._unpacker, self._leaving = Unpacker(), bytearray()
        self._transport: asyncio.Transport | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of this class

    def send(self, message: list[Any]) -> None:
        """Nothing for a connection that is lost: its other end knows."""
        if not self._leaving:
            asyncio.get_running_loop().call_soon(self._flush)
        self._leaving += pack(message)

    def _flush(self) -> None:
        if self._transport is not None and not self.is_lost:
            self._transport.write(bytes(self._leaving))
        self._leaving.clear()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._unpacker.feed(data):
                self._on_message(self, message)
        except Garbled as error:
            log.error("a connection between replicas is closed: %s", printable(str(error), 200))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._on_lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


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

    def knows(self, secret: bytes) -> bool:
        return hmac.compare_digest(secret, self._secret)

    def take(self, line: Line, message: list[Any]) -> None:
        self._lines.add(line)
        number, kind, *rest = message
        receiver = self._receivers.get(number)
        if receiver is None:  # it went away meanwhile
            line.send([number, CANCEL])
            return
        receiver.line = line
        receiver.take(kind, rest)

    def lose(self, line: Line) -> None:
        self._lines.discard(line)
        for receiver in [r for r in self._receivers.values() if r.line is line]:
            receiver.lose("its connection has ended")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for line in list(self._lines):
            line.close()


class _Guest(Line):
    """A connection whose first bytes must be the secret."""

    def __init__(self, board: Switchboard) -> None:
        super().__init__(board.take, board.lose)
        self._board, self._head, self._is_known = board, b"", False

    def data_received(self, data: bytes) -> None:
        if not self._is_known:
            self._head += data
            if len(self._head) < SECRET_BYTES:
                return
            secret, data = self._head[:SECRET_BYTES], self._head[SECRET_BYTES:]
            if not self._board.knows(secret):
                self.close()
                return
            self._is_known, self._head = True, b""
        super().data_received(data)


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
            return await asyncio.shield(task)
        except (OSError, TimeoutError) as error:
            self._lines.pop(reply_to, None)
            raise Lost(f"{reply_to.host}:{reply_to.port} takes no connection: {error}") from None

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
        for task in self._lines.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
