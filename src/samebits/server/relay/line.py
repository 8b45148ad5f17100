"""One end of a connection between processes, which ends when the other end no longer reads."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, cast

from samebits.core.printable import printable
from samebits.server.relay.wire import MAX_MESSAGE_BYTES, Garbled, Unpacker, pack

log = logging.getLogger("samebits.server")
STALL_SECONDS = 30.0  # for which the other end may read nothing of what waits for it
MAX_UNREAD_BYTES = 2 * MAX_MESSAGE_BYTES  # that wait for the other end
SEND_BUFFER_BYTES = 1 << 18  # of the system's send buffer, which would grow to megabytes for one that does not read


class Line(asyncio.Protocol):
    """One end of a connection. Messages of one turn of the event loop leave together."""

    def __init__(self, on_message: Callable[[Line, list[Any]], None], on_lost: Callable[[Line], None]) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._unpacker, self._leaving = Unpacker(), bytearray()
        self._transport: asyncio.Transport | None = None
        self._num_written = 0
        self._stall: asyncio.TimerHandle | None = None  # runs while the transport holds what the other end must read
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of this class
        if (system := transport.get_extra_info("socket")) is not None:
            system.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def send(self, message: list[Any]) -> None:
        """Queue a message. Do nothing if the connection is lost: the other end knows."""
        if self.is_lost:
            return
        if not self._leaving:
            asyncio.get_running_loop().call_soon(self._flush)
        self._leaving += pack(message)

    def _flush(self) -> None:
        if self._transport is not None and not self.is_lost:
            self._num_written += len(self._leaving)  # before `write`, which may call `pause_writing`
            self._transport.write(bytes(self._leaving))
            if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
                self._end(f"its other end leaves more than {MAX_UNREAD_BYTES} bytes unread")
        self._leaving.clear()

    def pause_writing(self) -> None:
        self._watch()

    def resume_writing(self) -> None:
        self._unwatch()

    def _watch(self) -> None:
        """Look again after STALL_SECONDS whether the other end has read anything since."""
        self._stall = asyncio.get_running_loop().call_later(STALL_SECONDS, self._check, self._num_read())

    def _unwatch(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check(self, num_read_before: int) -> None:
        if self._num_read() > num_read_before:
            self._watch()
        else:
            self._end(f"its other end has read nothing for {STALL_SECONDS:g} seconds")

    def _num_read(self) -> int:
        """Return the bytes that the transport has passed on."""
        return self._num_written - (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._unpacker.feed(data):
                self._on_message(self, message)
        except Garbled as error:
            self._end(str(error))

    def _end(self, why: str) -> None:
        log.error("a connection between replicas is closed: %s", printable(why, 200))
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._unwatch()
        self._on_lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
