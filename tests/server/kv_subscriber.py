"""A subscriber of KV events that decodes what it gets by itself, with none of the server's types."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

Batch = tuple[bytes, int, list[Any]]  # topic, number, events as arrays
SECONDS = 20


class Subscriber:
    """Hears a publisher from when the connection is made, which may be after this returns."""

    def __init__(self, context: zmq.Context, address: str) -> None:
        self._socket = context.socket(zmq.SUB)
        self._socket.subscribe(b"")
        self._socket.connect(address)

    def next(self, seconds: float = SECONDS) -> Batch:
        assert self._socket.poll(int(1000 * seconds)), "no event comes"
        topic, number, payload = self._socket.recv_multipart()
        return topic, int.from_bytes(number, "big"), events_in(payload)


def events_in(payload: bytes) -> list[Any]:
    at, events, rank = msgspec.msgpack.decode(payload)
    assert abs(at - time.time()) < 600
    assert rank == 0
    return events


def replayed(context: zmq.Context, address: str, first: int) -> list[Batch]:
    """What is kept from a number on, as the newest vLLM answers: an empty part, topic, number, payload."""
    with context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)
        dealer.send_multipart((b"", first.to_bytes(8, "big")))
        found = []
        while True:
            assert dealer.poll(1000 * SECONDS), "no replay comes"
            empty, topic, number, payload = dealer.recv_multipart()
            assert empty == b""
            if not payload:
                assert (topic, number) == (b"", b"\xff" * 8)
                return found
            found.append((topic, int.from_bytes(number, "big"), events_in(payload)))


@contextmanager
def listening(*addresses: str) -> Iterator[list[Subscriber]]:
    context = zmq.Context()
    try:
        yield [Subscriber(context, address) for address in addresses]
    finally:
        context.destroy(linger=0)
