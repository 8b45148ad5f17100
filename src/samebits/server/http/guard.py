"""All connections of a server: how many there may be, and which have to go."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict

from samebits.server.http.connection import OURS, Connection
from samebits.server.http.errors import busy
from samebits.server.limits import Limits
from samebits.server.metrics import Metrics

log = logging.getLogger("samebits.server")
TICK_SECONDS = 0.25
ACCEPT_BACKLOG = 256  # connections that may be taken at once, before any of them is counted
OTHER_DESCRIPTORS = 128  # descriptors for weights, pipes and libraries


def room_for(num_connections: int) -> int:
    """That many connections, or as many as there are descriptors for; raises the process's soft limit where it can."""
    try:
        import resource
    except ImportError:
        return num_connections  # a system without such limits
    spare = 2 * ACCEPT_BACKLOG + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num_connections + spare
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return num_connections
    more = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    except (ValueError, OSError):
        more = soft  # some systems allow less than they say
    return min(num_connections, max(more - spare, more // 4))


class Guard:
    """Counts connections by address and in all, and closes what takes too long.

    Where there is no room, the oldest connection whose request is not complete is closed: one of the same address, or
    of the address that has the most. One with an answer due is never closed for another; then the new one gets 503.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._max_connections = limits.max_connections
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._notes: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def protocol(self) -> type[asyncio.Protocol]:
        """The class of connections that this guard sees."""
        return type("GuardedConnection", (Connection,), {"guard": self})

    def admit(self, connection: Connection) -> None:
        """Counts a new connection, and makes room for it or sends it away."""
        own = self._by_address.setdefault(connection.address, {})
        own[connection] = None
        if len(own) > self._limits.max_address_connections:
            crowded = [own]
        elif self.num_connections > self._max_connections:
            crowded = sorted(self._by_address.values(), key=len, reverse=True)
        else:
            return
        older = next((c for group in crowded for c in group if c is not connection and c.phase not in OURS), None)
        if older is None:
            self.note("refused: every connection has an answer due", connection.address)
            connection.refuse(busy("the server has too many connections"))
            return
        self.note("closed: made room for newer ones", older.address)
        self.forget(older)
        older.transport.abort()

    def forget(self, connection: Connection) -> None:
        """Forgets a connection; does nothing for one that is not known."""
        own = self._by_address.get(connection.address, {})
        own.pop(connection, None)
        if not own:
            self._by_address.pop(connection.address, None)

    @property
    def num_connections(self) -> int:
        return sum(map(len, self._by_address.values()))

    def note(self, what: str, address: str) -> None:
        """Remembers an event for the next log line and for the metrics."""
        self._notes[what][address] += 1

    async def watch(self) -> None:
        """Looks after all connections until it is cancelled; writes at most one log line per second, and a last one."""
        self._max_connections = room_for(self._limits.max_connections)
        loop = asyncio.get_running_loop()
        next_line = loop.time()
        try:
            while True:
                try:
                    self._sweep(loop.time())
                    if self._notes and loop.time() >= next_line:
                        next_line = loop.time() + 1
                        self._say()
                except Exception:
                    log.exception("looking after connections failed")
                await asyncio.sleep(TICK_SECONDS)
        finally:
            if self._notes:
                self._say()

    def _sweep(self, now: float) -> None:
        for connection in [c for own in self._by_address.values() for c in own]:
            if connection.is_overdue(now, self._limits):
                self.note(f"closed: {connection.phase.value}", connection.address)
                connection.end(self._limits)
        self._metrics.connections.set(self.num_connections)

    def _say(self) -> None:
        """One line for all that was noted since the last."""
        parts = []
        for what, addresses in self._notes.items():
            ((most, _),) = addresses.most_common(1)
            parts.append(f"{addresses.total()} {what} (most from {most})")
            self._metrics.closed.labels(what).inc(addresses.total())
        self._notes.clear()
        log.warning("connections: %s", "; ".join(parts))
