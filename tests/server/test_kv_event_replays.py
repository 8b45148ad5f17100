"""Replays of KV events cost a bounded part of the publisher's time and memory, whoever asks and does not read."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import zmq
from kv_subscriber import SECONDS, replayed

from samebits.server.kv_events import replays
from samebits.server.kv_events.publisher import KvEventPublisher
from samebits.server.kv_events.replays import END, Replays
from samebits.server.kv_events.sockets import EventSockets

ANY = "tcp://127.0.0.1:*"
TOPIC = "kv@pod@tiny"
TOKENS = bytes(64)
NUM_KEPT, PAYLOAD = 3000, bytes(8192)


class Counting:
    """A real socket that counts what is sent through it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self.num_sent, self.num_bytes = Counter[bytes](), 0

    def send_multipart(self, parts: Any, flags: int = 0) -> None:
        self._socket.send_multipart(parts, flags)
        self.num_sent[parts[0]] += 1
        self.num_bytes += len(parts[-1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


@contextmanager
def serving() -> Iterator[tuple[Replays, Counting, str, zmq.Context[Any]]]:
    """Replays of NUM_KEPT batches, their counted socket and its address, and a context for peers."""
    ours, theirs = zmq.Context(), zmq.Context()
    socket = Replays.socket(ours)
    socket.bind(ANY)
    counting = Counting(socket)
    kept = deque((number, PAYLOAD) for number in range(NUM_KEPT))
    try:
        address = socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        yield Replays(counting, TOPIC.encode(), kept), counting, address, theirs  # type: ignore[arg-type]
    finally:
        theirs.destroy(linger=0)
        ours.destroy(linger=0)


def unread(context: zmq.Context[Any], address: str, num_requests: int = 1) -> zmq.Socket[bytes]:
    """A peer that asks for everything and reads nothing; the system holds little of it."""
    peer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    peer.rcvhwm, peer.rcvbuf = 1, 1 << 14
    peer.connect(address)
    for _ in range(num_requests):
        peer.send_multipart((b"", bytes(8)))
    return peer


def until_stalled(served: Replays, counting: Counting, num_peers: int) -> None:
    """Turn until every peer was sent something and three turns in a row have nothing to do; each turn is bounded."""
    num_idle = 0
    while num_idle < 3 or len(counting.num_sent) < num_peers:
        sent, num_bytes = counting.num_sent.total(), counting.num_bytes
        is_busy = served.turn()
        assert counting.num_sent.total() - sent <= replays.MAX_TURN_BATCHES + replays.MAX_PEER_BATCHES
        assert counting.num_bytes - num_bytes <= replays.MAX_TURN_BYTES + len(PAYLOAD)
        num_idle = 0 if is_busy else num_idle + 1
        counting.poll(0 if is_busy else 20)


@pytest.mark.parametrize(("num_peers", "num_requests"), [(1, 400), (8, 1), (8, 50)])
def test_who_does_not_read_holds_up_nobody(num_peers: int, num_requests: int) -> None:
    with serving() as (served, counting, address, context):
        peers = [unread(context, address, num_requests) for _ in range(num_peers)]
        until_stalled(served, counting, num_peers)
        assert max(counting.num_sent.values()) < NUM_KEPT  # nobody was sent everything
        assert len(served._under_way) == len(peers)
        reader = context.socket(zmq.DEALER)
        reader.connect(address)
        first = NUM_KEPT - 1000
        reader.send_multipart((b"", first.to_bytes(8, "big")))
        numbers = []
        while not numbers or numbers[-1] != END:
            served.turn()
            while reader.poll(1):
                numbers.append(reader.recv_multipart()[2])
        assert [int.from_bytes(number, "big") for number in numbers[:-1]] == list(range(first, NUM_KEPT))


def test_who_leaves_is_forgotten() -> None:
    with serving() as (served, counting, address, context):
        peers = [unread(context, address) for _ in range(8)]
        until_stalled(served, counting, 8)
        for peer in peers:
            peer.close(linger=0)
        while served._under_way:
            served.turn()
            counting.poll(1)


def test_the_oldest_unread_replay_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MAX_REPLAYS", 4)
    with serving() as (served, counting, address, context):
        peers = [unread(context, address) for _ in range(9)]
        until_stalled(served, counting, 4)
        assert len(served._under_way) == 4
        assert len(peers) == 9


def test_a_replay_whose_batches_are_gone_meanwhile_ends() -> None:
    with serving() as (served, counting, address, context):
        peer = unread(context, address)
        until_stalled(served, counting, 1)
        served._kept.clear()
        served._kept.append((2 * NUM_KEPT, PAYLOAD))
        number = b""
        while number != END:
            served.turn()
            if peer.poll(1):
                _, _, number, _ = peer.recv_multipart()
        assert not served._under_way


@pytest.mark.parametrize("parts", [(), (b"",), (b"", b"short"), (b"", bytes(8), b""), (b"", bytes(9))])
def test_what_is_no_request_is_passed_over(parts: tuple[bytes, ...]) -> None:
    with serving() as (served, _, address, context):
        peer = context.socket(zmq.DEALER)
        peer.connect(address)
        peer.send_multipart(parts or (b"",))
        peer.send_multipart((b"", NUM_KEPT.to_bytes(8, "big")))
        while not peer.poll(1):
            served.turn()
        assert peer.recv_multipart() == [b"", b"", END, b""]


def test_a_publisher_ends_while_nobody_reads_its_replays() -> None:
    """The thread has a turn or two to end in, and no turn is longer than its bounds."""
    sockets = EventSockets(ANY, ANY, TOPIC)
    counting = sockets._replays._socket = Counting(sockets._replays._socket)  # type: ignore[assignment]
    for number in range(NUM_KEPT):
        sockets.send(number, PAYLOAD)
    publisher, context, (_, address) = KvEventPublisher(sockets), zmq.Context(), sockets.addresses
    publisher.start(b"model", 16)
    peers = [unread(context, address, 20) for _ in range(20)]
    assert all(peer.poll(1000 * SECONDS) for peer in peers)  # each replay is under way
    num_sent = counting.num_sent.total()
    publisher.close()
    assert counting.num_sent.total() - num_sent <= 2 * replays.MAX_TURN_BATCHES + replays.MAX_PEER_BATCHES
    context.destroy(linger=0)


def test_a_replay_is_whole_while_events_go_on() -> None:
    sockets = EventSockets(ANY, ANY, TOPIC)
    publisher = KvEventPublisher(sockets)
    context = zmq.Context()
    publisher.start(b"model", 16)
    for i in range(5000):
        publisher.stored(None, i.to_bytes(16, "big"), TOKENS)
        found = replayed(context, sockets.addresses[1], 0) if i in (100, 3000) else []
        assert [number for _, number, _ in found] == list(range(len(found)))
    publisher.close()
    context.destroy(linger=0)
