"""The two sockets: one that all subscribers hear, and one that tells again what a subscriber has missed."""

from __future__ import annotations

import logging
from collections import deque

import zmq

from samebits.core.errors import BadInput, Unavailable

log = logging.getLogger("samebits.server")
SCHEMES = ("tcp://", "ipc://")
KEPT_BATCHES, KEPT_BYTES = 10_000, 64 << 20  # for subscribers that missed some
END = (-1).to_bytes(8, "big", signed=True)  # the number that ends a replay
LINGER_MS = 500  # for the last messages, when the server ends
EMPTY = b""


class EventSockets:
    """Sends numbered batches under a topic, and keeps the last ones. One thread at a time.

    An address with a `*`, or a path (ipc://), is listened on; any other one is connected to.
    """

    def __init__(self, address: str, replay_address: str | None, topic: str) -> None:
        self._topic = topic.encode()
        self._kept: deque[tuple[int, bytes]] = deque()
        self._num_kept_bytes = 0
        self._context = zmq.Context()
        try:
            self._publish = self._open(zmq.PUB, "--kv-events", address)
            self._replay = None
            if replay_address is not None:
                self._replay = self._open(zmq.ROUTER, "--kv-events-replay", replay_address)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _open(self, kind: int, option: str, address: str) -> zmq.Socket[bytes]:
        if not address.startswith(SCHEMES):
            raise BadInput("serve", option, address, "an address such as tcp://*:5557")
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.sndhwm = KEPT_BATCHES + 1  # what a slow subscriber has not read, in messages
        try:
            if "*" in address or address.startswith("ipc://"):
                socket.bind(address)
            else:
                socket.connect(address)
        except zmq.ZMQError as error:
            raise Unavailable(f"serve: {option} {address}: {error.strerror}") from None
        return socket

    @property
    def addresses(self) -> tuple[str, ...]:
        """Those in use, with the ports that were chosen where a `*` stood for one."""
        sockets = (self._publish, self._replay)
        return tuple(s.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0") for s in sockets if s is not None)

    def send(self, number: int, payload: bytes) -> None:
        """To whoever listens; a subscriber that reads too slowly misses it."""
        self._publish.send_multipart((self._topic, number.to_bytes(8, "big"), payload))
        self._kept.append((number, payload))
        self._num_kept_bytes += len(payload)
        while len(self._kept) > KEPT_BATCHES or self._num_kept_bytes > KEPT_BYTES:
            self._num_kept_bytes -= len(self._kept.popleft()[1])

    def answer_replays(self) -> None:
        """Sends what is kept from the asked number on to each subscriber that asks, then the end's mark."""
        if self._replay is None:
            return
        while self._replay.poll(0):
            sender, *rest = self._replay.recv_multipart()
            if len(rest) != 2 or len(rest[1]) != 8:
                log.info("a replay of KV events was asked for with %d parts; needs an empty one and 8 bytes", len(rest))
                continue
            first = int.from_bytes(rest[1], "big")
            for number, payload in self._kept:
                if number >= first:
                    self._replay.send_multipart((sender, EMPTY, self._topic, number.to_bytes(8, "big"), payload))
            self._replay.send_multipart((sender, EMPTY, EMPTY, END, EMPTY))

    def close(self) -> None:
        self._context.destroy(linger=LINGER_MS)
