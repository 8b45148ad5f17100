"""Response formats as token masks, through llguidance in processes that can be ended."""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from samebits.core.errors import SamebitsError
from samebits.grammar.masks import Follower
from samebits.grammar.process import Ended, Nursery, Refused, Vocabulary
from samebits.grammar.wire import KINDS, Bounds
from samebits.server.grammar.compiling import compile_in, first_forked, forked
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.errors import ApiError, bad_request, busy

MAX_REASON_CHARS = 200
MAX_COMPILING = min(max(2, os.cpu_count() or 2), 8)  # at once
MAX_WAITING = 8 * MAX_COMPILING  # formats; more are sent away with 503
MAX_KEPT, MAX_KEPT_BYTES = 32, 256 << 20  # compiled formats that are kept for later requests
MAX_FOLLOWED, MAX_FOLLOWED_BYTES = (
    64,
    1 << 30,
)  # requests with a format that are under way, and the memory that their formats take
Key = tuple[bytes, str]


@dataclass(frozen=True)
class _Compiled:
    """The socket of a format's process, and the memory that the format takes."""

    stream: socket.socket
    num_bytes: int


@dataclass(eq=False)
class _Entry:
    """A format that is compiled or will be."""

    task: asyncio.Task[_Compiled]
    num_waiting: int = 0
    has_begun: bool = False

    @property
    def compiled(self) -> _Compiled | None:
        is_there = self.task.done() and not self.task.cancelled() and self.task.exception() is None
        return self.task.result() if is_there else None


class Grammars:
    """Compiles response formats for one model and keeps the last ones. For one event loop; `close` when that has ended.

    Without a vocabulary every format is refused.
    """

    def __init__(self, vocabulary: Vocabulary | None, compile_seconds: float) -> None:
        self._vocabulary = vocabulary
        self._nursery = Nursery(vocabulary, Bounds(compile_seconds)) if vocabulary else None
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()  # the one that was asked for last is the last
        self._slots = asyncio.Semaphore(MAX_COMPILING)
        self.num_compiling = 0  # or waiting for that
        self._followed: weakref.WeakKeyDictionary[Follower, int] = weakref.WeakKeyDictionary()  # format bytes of each

    async def follower(self, wanted: OutputFormat | None) -> Follower | None:
        """What makes a mask for each sample, until it is ended; None for plain text.

        ApiError for a format that cannot be compiled, and while too many are being compiled.
        """
        if wanted is None:
            return None
        nursery, vocabulary = self._nursery_for(wanted)
        under_way = [num_bytes for f, num_bytes in list(self._followed.items()) if not f.is_ended]
        if len(under_way) >= MAX_FOLLOWED or sum(under_way) >= MAX_FOLLOWED_BYTES:
            raise busy(f"the server is busy: {len(under_way)} requests with response formats are under way")
        with _refusals(wanted):
            stream, num_bytes = await self._forked(nursery, (KINDS[wanted.kind], wanted.source))
        follower = Follower(stream, vocabulary.vocab_size, vocabulary.end)
        self._followed[follower] = num_bytes
        return follower

    async def check(self, wanted: OutputFormat) -> None:
        """Compiles a format as `follower` would, for others to follow it; raises what that would."""
        with _refusals(wanted):
            await self._compiled(self._nursery_for(wanted)[0], (KINDS[wanted.kind], wanted.source))

    def _nursery_for(self, wanted: OutputFormat) -> tuple[Nursery, Vocabulary]:
        if self._vocabulary is None or self._nursery is None:
            needed = "a server on a system with fork, and a model with a file and an end-of-text token"
            raise bad_request(wanted.param, wanted.kind, needed)
        return self._nursery, self._vocabulary

    async def _forked(self, nursery: Nursery, key: Key) -> tuple[socket.socket, int]:
        """A socket to a process that follows answers in this format, and the format's bytes."""
        for _ in range(2):
            compiled = await self._compiled(nursery, key)
            try:
                return await forked(compiled.stream), compiled.num_bytes
            except Ended:  # something outside ended its process
                entry = self._entries.get(key)
                if entry and entry.compiled is compiled:  # another request may have had it compiled anew
                    self._drop(key)
        raise SamebitsError("the process of the response format has ended")

    async def _compiled(self, nursery: Nursery, key: Key) -> _Compiled:
        """The format's process, once that has compiled it. Many may wait for the same."""
        entry = self._entries.get(key)
        if entry is None:
            if self.num_compiling >= MAX_COMPILING + MAX_WAITING:
                raise busy(f"the server is busy: {self.num_compiling} response formats wait to be compiled")
            entry = self._add(nursery, key)
        self._entries.move_to_end(key)
        entry.num_waiting += 1
        try:
            return await asyncio.shield(entry.task)
        finally:
            entry.num_waiting -= 1
            if not entry.num_waiting and not entry.has_begun:
                entry.task.cancel()  # nobody wants it any more
                self._entries.pop(key, None)

    def _add(self, nursery: Nursery, key: Key) -> _Entry:
        entry = _Entry(asyncio.create_task(self._compile(nursery, key)))
        entry.task.add_done_callback(lambda _: self._settle(key, entry))
        self.num_compiling += 1
        self._entries[key] = entry
        return entry

    async def _compile(self, nursery: Nursery, key: Key) -> _Compiled:
        async with self._slots:  # held until the process has an answer or has ended, whoever still waits for it
            self._entries[key].has_begun = True
            stream = await first_forked(nursery)
            try:
                return _Compiled(stream, await compile_in(stream, *key))
            except BaseException:
                stream.close()
                raise

    def _settle(self, key: Key, entry: _Entry) -> None:
        """After a compilation: forgets a format that failed, and the oldest ones where there are too many."""
        self.num_compiling -= 1
        if entry.compiled is None and self._entries.get(key) is entry:
            del self._entries[key]
        kept = {k: e.compiled.num_bytes for k, e in self._entries.items() if e.compiled}
        while len(kept) > MAX_KEPT or (len(kept) > 1 and sum(kept.values()) > MAX_KEPT_BYTES):
            oldest = next(iter(kept))
            self._drop(oldest)
            del kept[oldest]

    def _drop(self, key: Key) -> None:
        entry = self._entries.get(key)
        if entry and entry.compiled:
            entry.compiled.stream.close()
            del self._entries[key]

    def close(self) -> None:
        """Ends all processes; formats that are asked for later are refused."""
        for key in list(self._entries):
            self._drop(key)
        if self._nursery is not None:
            self._nursery.close()


class CheckedGrammars(Grammars):
    """For a server whose replicas follow formats: it compiles each first, so that a bad one is refused here."""

    async def follower(self, wanted: OutputFormat | None) -> None:
        """Nothing to follow here; ApiError as Grammars has it."""
        if wanted is not None:
            await self.check(wanted)


@contextmanager
def _refusals(wanted: OutputFormat) -> Iterator[None]:
    """What compiling raises, as the client gets it."""
    try:
        yield
    except Refused as error:
        reason = str(error)[:MAX_REASON_CHARS]
        raise ApiError(400, f"{wanted.param} cannot be compiled: {reason}", wanted.param) from None
    except Ended:
        message = f"{wanted.param} takes too much time or memory to compile: it must be simpler"
        raise ApiError(400, message, wanted.param) from None
    except SamebitsError as error:
        raise ApiError(500, str(error), wanted.param, "internal_error") from None
