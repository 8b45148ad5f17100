"""Replays of kept batches, a bounded part per turn: no peer can hold up the events, other peers or the server's end."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice

import zmq

log = logging.getLogger("samebits.server")
MAX_REPLAYS = 256  # peers with a replay under way; the one that has waited longest to be read gives way
MAX_TURN_REQUESTS = 64  # read in one turn
MAX_TURN_BATCHES, MAX_TURN_BYTES = 256, 1 << 20  # sent in one turn, to all peers together
MAX_PEER_BATCHES = 16  # of these in a peer's turn
MAX_UNREAD_BATCHES = 32  # queued for one peer; the others follow as it reads
MAX_REQUEST_BYTES = 256  # of a part
END = (-1).to_bytes(8, "big", signed=True)  # the number that ends a replay
EMPTY = b""


@dataclass
class _Replay:
    """Numbers that a peer is still to be sent: from `first` up to `last`."""

    first: int
    last: int


class Replays:
    """Answers (empty part, first number of 8 bytes) with every kept batch from that number on, then the end's mark.

    A peer has one replay at a time: a new request takes the place of the one before. Batches that are sent after the
    request are not part of its replay. A peer that does not read costs its queue of MAX_UNREAD_BATCHES and a record.
    """

    @staticmethod
    def socket(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
        """Return a socket for replays, neither bound nor connected yet: its options apply to later connections."""
        socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        socket.sndhwm = MAX_UNREAD_BATCHES
        socket.rcvhwm = MAX_TURN_REQUESTS
        socket.maxmsgsize = MAX_REQUEST_BYTES
        socket.router_mandatory = True  # a full queue and a lost peer are errors, instead of silence
        return socket

    def __init__(self, socket: zmq.Socket[bytes], topic: bytes, kept: deque[tuple[int, bytes]]) -> None:
        """kept: (number, payload) by rising numbers; the caller adds at its end and removes at its start."""
        self._socket, self._topic, self._kept = socket, topic, kept
        self._under_way: OrderedDict[bytes, _Replay] = OrderedDict()  # the peer that was served last is the last

    def turn(self) -> bool:
        """Read requests and send batches within the bounds of one turn. Return whether there was anything to do."""
        num_requests = self._read_requests()
        num_batches = num_bytes = num_ended = 0
        for peer in list(self._under_way):
            if num_batches >= MAX_TURN_BATCHES or num_bytes >= MAX_TURN_BYTES:
                break
            sent = self._serve(peer, MAX_TURN_BYTES - num_bytes)
            num_batches, num_bytes = num_batches + len(sent), num_bytes + sum(sent)
            num_ended += peer not in self._under_way
        return num_requests + num_batches + num_ended > 0

    def _read_requests(self) -> int:
        for count in range(MAX_TURN_REQUESTS):
            try:
                peer, *rest = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return count
            if len(rest) != 2 or len(rest[1]) != 8:
                log.info("a replay of KV events was asked for with %d parts; needs an empty one and 8 bytes", len(rest))
                continue
            last = self._kept[-1][0] if self._kept else -1
            self._under_way.pop(peer, None)
            self._under_way[peer] = _Replay(int.from_bytes(rest[1], "big"), last)
            if len(self._under_way) > MAX_REPLAYS:
                self._under_way.popitem(last=False)
        return MAX_TURN_REQUESTS

    def _serve(self, peer: bytes, max_bytes: int) -> list[int]:
        """Send a peer its next batches until their bytes exceed `max_bytes`, or the end's mark. Return their sizes.

        The replay ends if the peer has been sent all of it, or has gone.
        """
        replay, sent = self._under_way[peer], list[int]()
        start = bisect_left(self._kept, replay.first, key=lambda batch: batch[0])
        batches = [b for b in islice(self._kept, start, start + MAX_PEER_BATCHES) if b[0] <= replay.last]
        if not batches and self._send(peer, EMPTY, END, EMPTY):
            self._under_way.pop(peer, None)
        for number, payload in batches:
            if sum(sent) >= max_bytes or not self._send(peer, self._topic, number.to_bytes(8, "big"), payload):
                break
            replay.first = number + 1
            sent.append(len(payload))
            self._under_way.move_to_end(peer)
        return sent

    def _send(self, peer: bytes, *parts: bytes) -> bool:
        """Send without waiting. Return False if the peer's queue is full, or if it has gone, which ends its replay."""
        try:
            self._socket.send_multipart((peer, EMPTY, *parts), zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._under_way.pop(peer, None)
            return False
        return True
