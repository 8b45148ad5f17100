"""A bound on the memory of all request bodies that are being read, so that many large ones cannot exhaust it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from samebits.server.http.errors import busy


class PendingBody:
    """A body as far as it has come, and whether it was given up to make room for others."""

    def __init__(self, address: str) -> None:
        self.address, self.data = address, bytearray()
        self.is_given_up = self.is_complete = False


class BodyBudget:
    """Bounds the bytes of all bodies that are being read. For one event loop.

    If there are too many, the largest incomplete body of the address that holds most is given up, so small bodies
    and other clients' bodies are read all the same.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self.num_bytes = max_bytes, 0
        self._bodies: set[PendingBody] = set()

    @contextmanager
    def body(self, address: str) -> Iterator[PendingBody]:
        """Count a new body until the end of the block."""
        body = PendingBody(address)
        self._bodies.add(body)
        try:
            yield body
        finally:
            self._bodies.discard(body)
            self.num_bytes -= len(body.data)

    def add(self, body: PendingBody, chunk: bytes) -> None:
        """Add the next bytes of a body. Raise ApiError 503 if it was given up, now or before."""
        if not body.is_given_up:
            body.data += chunk
            self.num_bytes += len(chunk)
            while self.num_bytes > self._max_bytes and (largest := self._largest()) is not None:
                self._give_up(largest)
        self._check(body)

    def complete(self, body: PendingBody) -> None:
        """Keep a body whose end has come: it counts, and is not given up. Raise ApiError 503 if it was before."""
        self._check(body)
        body.is_complete = True

    def _check(self, body: PendingBody) -> None:
        if body.is_given_up:
            raise busy(f"the server is busy: it reads bodies of {self._max_bytes} bytes in all already")

    def _largest(self) -> PendingBody | None:
        held: Counter[str] = Counter()
        for body in self._bodies:
            held[body.address] += len(body.data)
        found = [body for body in self._bodies if body.data and not body.is_complete]
        return max(found, key=lambda body: (held[body.address], len(body.data)), default=None)

    def _give_up(self, body: PendingBody) -> None:
        self.num_bytes -= len(body.data)
        body.data, body.is_given_up = bytearray(), True
