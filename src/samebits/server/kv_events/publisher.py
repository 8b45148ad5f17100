"""From the engine's thread to subscribers, without the engine ever waiting for them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from enum import Enum

import msgspec

from samebits.server.kv_events.sockets import EventSockets
from samebits.server.kv_events.wire import AllBlocksCleared, Event, EventBatch, Naming, Removed, Stored

log = logging.getLogger("samebits.server")
MAX_QUEUED = 1 << 17  # changes that wait to be sent
MAX_BATCH = 1 << 9  # changes of one message: what a peer does not read is bounded in messages
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.001, 0.05  # between parts of replays, and between looks for requests of them


class Mark(Enum):
    """What the queue holds beside changes."""

    LOSS = 1  # changes are missing here
    END = 2


class KvEventPublisher:
    """A listener of the engine's pages that tells subscribers, from a thread of its own.

    Numbers count from 0. The first batch says that nothing is kept, and so does the last. Where the queue is full,
    changes are dropped: a number is left out then, and the next batch says that nothing is kept, so that a router
    knows less than there is, never more.

    on_drop   is called on the engine's thread for each change that is dropped
    """

    def __init__(self, sockets: EventSockets, max_queued: int = MAX_QUEUED) -> None:
        self._sockets, self._max_queued = sockets, max_queued
        self._queue: queue.SimpleQueue[Stored | Removed | Mark] = queue.SimpleQueue()
        self._number, self._is_losing = 0, False
        self.on_drop: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None

    def start(self, model: bytes, page_size: int) -> None:
        """Sends begin: it is known what is in the model's files, which `model` says."""
        naming = Naming(model, page_size)
        self._thread = threading.Thread(target=self._work, args=(naming,), name="samebits-kv-events", daemon=True)
        self._thread.start()

    def stored(self, parent: bytes | None, digest: bytes, tokens: bytes) -> None:
        self._put(Stored(parent, digest, tokens))

    def removed(self, digest: bytes) -> None:
        self._put(Removed(digest))

    def _put(self, change: Stored | Removed) -> None:
        if self._queue.qsize() >= self._max_queued:
            self._is_losing = True
            self.on_drop()
            return
        if self._is_losing:
            self._is_losing = False
            self._queue.put(Mark.LOSS)
        self._queue.put(change)

    def close(self) -> None:
        """Sends what waits, says that nothing is kept any more, and closes the sockets."""
        if self._thread is not None:
            self._queue.put(Mark.END)
            self._thread.join()
        self._sockets.close()

    def _work(self, naming: Naming) -> None:
        try:
            self._tell(naming)
        except Exception:  # the engine goes on: from now on changes fill the queue, then they are counted as dropped
            log.exception("KV events have ended")

    def _tell(self, naming: Naming) -> None:
        """Until the end's mark."""
        self._send([AllBlocksCleared()])
        wait_seconds = MIN_WAIT_SECONDS
        while True:
            changes, mark = self._take(wait_seconds)
            if changes:
                self._send(naming.events(changes))
            if mark is Mark.LOSS:
                self._number += 1
                log.warning("KV events were dropped: they come faster than they can be sent")
            if mark is not None:
                self._send([AllBlocksCleared()])
            if mark is Mark.END:
                return
            is_busy = self._sockets.answer_replays()
            wait_seconds = MIN_WAIT_SECONDS if is_busy else min(2 * wait_seconds, MAX_WAIT_SECONDS)

    def _take(self, wait_seconds: float) -> tuple[list[Stored | Removed], Mark | None]:
        """Return the changes that wait, up to a mark, or none if nothing comes for `wait_seconds`."""
        changes: list[Stored | Removed] = []
        try:
            item = self._queue.get(timeout=wait_seconds)
            while not isinstance(item, Mark):
                changes.append(item)
                if len(changes) == MAX_BATCH:
                    return changes, None
                item = self._queue.get_nowait()
        except queue.Empty:
            return changes, None
        return changes, item

    def _send(self, events: list[Event]) -> None:
        self._sockets.send(self._number, msgspec.msgpack.encode(EventBatch(time.time(), events)))
        self._number += 1
