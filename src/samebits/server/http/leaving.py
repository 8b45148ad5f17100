"""How a connection ends whose client still sends: an answer that it has not read yet must not be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class LeavingTransport:
    """A transport whose `close` reads on while the client still sends, and drops what it reads.

    A system that closes a socket with unread bytes resets the connection, and the client loses the end of its answer.
    So the answer's end is told first (a half-close), and the socket is closed when the client has closed its side, or
    with `close_now`, which whoever looks after connections calls in time.
    """

    def __init__(self, transport: asyncio.Transport, may_send: Callable[[], bool]) -> None:
        """may_send: says whether more of the client's request may come."""
        self._transport, self._may_send = transport, may_send
        self.is_leaving = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.is_leaving or self._transport.is_closing()

    def close(self) -> None:
        """Close at once if the whole request has come, else once the client has closed its side."""
        if self._may_send():
            self.leave()
        else:
            self._transport.close()

    def leave(self) -> None:
        """Tell the client that nothing more comes, and drop what it still sends."""
        if not self.is_closing():
            self.is_leaving = True
            self._transport.write_eof()
            self._transport.resume_reading()

    def close_now(self) -> None:
        self._transport.close()
