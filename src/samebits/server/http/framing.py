"""Where a request begins and ends, as h11 reads it, with stricter rules.

Whatever two programs in a chain could read in two ways is refused, and its connection closed, so that no request hides
in another. The parser is h11 wherever this runs, whatever else is installed.
"""

from __future__ import annotations

import re
from typing import Any

import h11

MAX_HEAD_BYTES = 1 << 14
MAX_HEADERS = 100
FREE_CHUNKS, MIN_CHUNK_BYTES = 1000, 64  # each chunk costs us time, however little is in it
END_OF_HEAD = re.compile(rb"\n\r?\n")
LOOSE_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")  # not ended by CR LF, or a line folded over two


def check_head(head: bytes) -> None:
    """RemoteProtocolError for a head, its empty line included, that is too long or can be read in two ways."""
    if len(head) > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError(f"the head has {len(head)} bytes, but must have at most {MAX_HEAD_BYTES}", 431)
    if LOOSE_LINE.search(head):
        raise h11.RemoteProtocolError(
            "the head has a line that is folded or has no CR LF, but each line must end with CR LF"
        )
    first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    if len(lines) > MAX_HEADERS:
        raise h11.RemoteProtocolError(f"the head has {len(lines)} headers, but must have at most {MAX_HEADERS}", 431)
    fields = [line.partition(b":")[::2] for line in lines]
    lengths = [value for name, value in fields if name.strip().lower() == b"content-length"]
    encodings = [value for name, value in fields if name.strip().lower() == b"transfer-encoding"]
    if len(lengths) + len(encodings) > 1 or any(b"," in value for value in lengths):
        raise h11.RemoteProtocolError(
            "the head has several lengths, but must have one Content-Length or Transfer-Encoding"
        )
    if encodings and first.endswith(b"HTTP/1.0"):
        raise h11.RemoteProtocolError("the head has Transfer-Encoding in HTTP/1.0, but it must be HTTP/1.1")


def check_request(request: h11.Request) -> None:
    """RemoteProtocolError for a version or a form of target that this server does not serve."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise h11.RemoteProtocolError("the version must be HTTP/1.1 or HTTP/1.0", 505)
    if not request.target.startswith(b"/"):
        raise h11.RemoteProtocolError("the target must be a path that starts with /")


class StrictConnection(h11.Connection):
    """The server's side of a connection. `fault` is the error that `next_event` raised last."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self.fault: h11.RemoteProtocolError | None = None
        self._num_chunks = self._num_body_bytes = 0

    def next_event(self) -> Any:
        try:
            if self.their_state is h11.IDLE:
                waiting = self.trailing_data[0]
                if end := END_OF_HEAD.search(waiting):
                    check_head(waiting[: end.end()])
            event = super().next_event()
            if isinstance(event, h11.Request):
                check_request(event)
                self._num_chunks = self._num_body_bytes = 0
            elif isinstance(event, h11.Data):
                self._count(event)
            return event
        except h11.RemoteProtocolError as error:
            self.fault = error
            raise

    def _count(self, event: h11.Data) -> None:
        self._num_chunks += event.chunk_start
        self._num_body_bytes += len(event.data)
        if self._num_chunks > FREE_CHUNKS + self._num_body_bytes // MIN_CHUNK_BYTES:
            raise h11.RemoteProtocolError(
                f"the body has small chunks, but each must have at least {MIN_CHUNK_BYTES} bytes"
            )
