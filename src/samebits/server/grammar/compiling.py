"""Compiling a format in a process, without a thread that waits for it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from samebits.core.errors import SamebitsError
from samebits.core.printable import one_line
from samebits.grammar.process import START_SECONDS, Ended, Nursery, Refused, fork_through
from samebits.grammar.wire import HEAD, HELLO, REFUSED, frame


async def read_frame(stream: socket.socket) -> tuple[bytes, int, str]:
    """Kind, number and text of the next reply, without a thread that waits for it; Ended where none will come."""
    loop = asyncio.get_running_loop()

    async def exactly(num_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < num_bytes:
            try:
                part = await loop.sock_recv(stream, num_bytes - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise Ended
            data += part
        return bytes(data)

    kind, number, num_bytes = HEAD.unpack(await exactly(HEAD.size))
    return kind, number, (await exactly(num_bytes)).decode("utf-8", "replace")


async def forked(control: socket.socket) -> socket.socket:
    """A socket to a new child of the process behind `control`; Ended where that has gone, or goes meanwhile."""
    try:
        stream = fork_through(control)
    except OSError:
        raise Ended from None
    return await _greeted(stream)


async def first_forked(nursery: Nursery) -> socket.socket:
    """A socket to a new process that waits for a format; SamebitsError where there can be none."""
    for _ in range(2):  # the one that forks may have been ending
        with suppress(Ended):
            return await _greeted(await asyncio.to_thread(nursery.child))
    raise SamebitsError("the process for response formats did not start")


async def _greeted(stream: socket.socket) -> socket.socket:
    """The socket to a new process, once that is there; it is closed, and Ended raised, where none comes up."""
    stream.setblocking(False)
    try:
        async with asyncio.timeout(START_SECONDS):
            hello, _, _ = await read_frame(stream)
        if hello != HELLO:
            raise SamebitsError("the process for response formats is of another version")
    except TimeoutError:
        stream.close()
        raise Ended from None
    except BaseException:
        stream.close()
        raise
    return stream


async def compile_in(stream: socket.socket, kind: bytes, text: str) -> int:
    """Has a new process compile a format; returns the bytes of memory that it takes there.

    Refused with the reason, Ended where it broke a bound.
    """
    try:
        await asyncio.get_running_loop().sock_sendall(stream, frame(kind, payload=text.encode("utf-8")))
    except ConnectionError:
        raise Ended from None
    verdict, num_bytes, reason = await read_frame(stream)
    if verdict == REFUSED:
        raise Refused(one_line(reason))
    return num_bytes
