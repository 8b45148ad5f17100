"""Which replicas hold which prefix: what a router keeps of KV events, and how much work that is."""

from __future__ import annotations

from collections.abc import Sequence

from samebits.cache import Prefix


class PrefixIndex:
    """Sets of replicas by digest, as bits of a number. It is fed by the pages of each replica and asked by a router."""

    def __init__(self) -> None:
        self._holders: dict[bytes, int] = {}
        self.num_entries = self.peak_entries = 0  # (prefix, replica) pairs
        self.num_events = self.num_lookups = self.num_probes = 0

    def listener(self, replica: int) -> ReplicaListener:
        """What the pages of a replica tell of themselves."""
        return ReplicaListener(self, 1 << replica)

    def add(self, digest: bytes, bit: int) -> None:
        self._holders[digest] = self._holders.get(digest, 0) | bit
        self.num_events += 1
        self.num_entries += 1
        self.peak_entries = max(self.peak_entries, self.num_entries)

    def drop(self, digest: bytes, bit: int) -> None:
        left = self._holders[digest] & ~bit
        if left:
            self._holders[digest] = left
        else:
            del self._holders[digest]
        self.num_events += 1
        self.num_entries -= 1

    def longest(self, prefixes: Sequence[Prefix]) -> int:
        """The replicas that hold most of the prefixes from the first on, as bits; 0 where none holds the first."""
        found, get = 0, self._holders.get
        self.num_lookups += 1
        for prefix in prefixes:
            self.num_probes += 1
            holders = get(prefix.digest, 0)
            left = holders if not found else holders & found
            if not left:
                break
            found = left
        return found


class ReplicaListener:
    """Notes in an index what one replica's pages hold."""

    def __init__(self, index: PrefixIndex, bit: int) -> None:
        self._index, self._bit = index, bit

    def stored(self, parent: bytes | None, digest: bytes, tokens: bytes) -> None:
        self._index.add(digest, self._bit)

    def removed(self, digest: bytes) -> None:
        self._index.drop(digest, self._bit)
