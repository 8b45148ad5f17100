"""The two sockets: one that all subscribers hear, and one that tells again what a subscriber has missed."""

from __future__ import annotations

from collections import deque

import zmq

from samebits.core.errors import Unavailable
from samebits.server.kv_events.endpoints import parse
from samebits.server.kv_events.replays import Replays

KEPT_BATCHES, KEPT_BYTES = 10_000, 64 << 20  # for subscribers that missed some
MAX_UNREAD_BATCHES = 1_000  # queued for a slow subscriber; it misses those that follow
LINGER_MS = 500  # for the last messages, when the server ends


class EventSockets:
    """Sends numbered batches under a topic, and keeps the last ones. One thread at a time.

    Addresses of this machine, wildcards and paths (ipc://) are listened on; any other one is connected to.
    """

    def __init__(self, address: str, replay_address: str | None, topic: str) -> None:
        self._topic = topic.encode()
        self._kept: deque[tuple[int, bytes]] = deque()
        self._num_kept_bytes = 0
        self._context = zmq.Context()
        self._lines: list[str] = []
        try:
            publish = self._context.socket(zmq.PUB)
            publish.sndhwm = MAX_UNREAD_BATCHES
            self._publish = self._open(publish, "--kv-events", address)
            self._replay: zmq.Socket[bytes] | None = None
            if replay_address is not None:
                replay = Replays.socket(self._context)
                self._replay = self._open(replay, "--kv-events-replay", replay_address)
                self._replays = Replays(replay, self._topic, self._kept)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _open(self, socket: zmq.Socket[bytes], option: str, address: str) -> zmq.Socket[bytes]:
        """Bind or connect the socket, and note for `description` which of the two."""
        endpoint = parse(option, address)
        socket.ipv6 = endpoint.is_ipv6
        try:
            if endpoint.is_bound:
                socket.bind(endpoint.address)
            else:
                socket.connect(endpoint.address)
        except zmq.ZMQError as error:
            raise Unavailable(f"serve: {option} {address}: {error.strerror}") from None
        self._lines.append(f"{option} {'listens on' if endpoint.is_bound else 'connects to'} {_in_use(socket)}")
        return socket

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in use, with the ports that were chosen where a `*` stood for one."""
        return tuple(_in_use(s) for s in (self._publish, self._replay) if s is not None)

    @property
    def description(self) -> str:
        """One line per socket: its option, whether it listens or connects, and its address."""
        return "\n".join(self._lines)

    def send(self, number: int, payload: bytes) -> None:
        """Send a batch to all who listen, and keep it for replays. A subscriber that reads too slowly misses it."""
        self._publish.send_multipart((self._topic, number.to_bytes(8, "big"), payload))
        self._kept.append((number, payload))
        self._num_kept_bytes += len(payload)
        while len(self._kept) > KEPT_BATCHES or self._num_kept_bytes > KEPT_BYTES:
            self._num_kept_bytes -= len(self._kept.popleft()[1])

    def answer_replays(self) -> bool:
        """Do a bounded part of the replays that were asked for. Return whether there was anything to do."""
        return self._replay is not None and self._replays.turn()

    def close(self) -> None:
        self._context.destroy(linger=LINGER_MS)


def _in_use(socket: zmq.Socket[bytes]) -> str:
    return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
