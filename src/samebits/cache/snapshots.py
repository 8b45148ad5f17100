"""Snapshots: slots beside those of running sequences that hold what a known prefix leaves behind, not in pages."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from samebits.cache.origins import check_match
from samebits.cache.pages import Prefix
from samebits.core.errors import BadInput


class SlotCopy(NamedTuple):
    """One slot's contents to be written to another before a step; copies are made one after another.

    resumable_only   only what holds at a boundary; otherwise all, also what came since then
    """

    source: int
    target: int
    resumable_only: bool


class SnapshotPool:
    """Slots first .. first + count - 1 and the prefixes they hold; the one unused for longest is taken first.

    A slot that a copy of the coming step reads or writes is busy: it keeps what it holds until `release`.
    """

    def __init__(self, first: int, count: int) -> None:
        self._slots = range(first, first + count)
        self.num_evicted = 0
        self.clear()

    def clear(self) -> None:
        """Forget all snapshots, in whatever state they are: every slot is blank."""
        self._blank = list(reversed(self._slots))
        self._held: OrderedDict[bytes, tuple[int, Prefix]] = OrderedDict()  # by digest, the youngest last
        self._busy: set[int] = set()

    @property
    def num_held(self) -> int:
        return len(self._held)

    def find(self, prefix: Prefix) -> int | None:
        """The slot that holds what exactly this leaves behind; a digest alone is not believed."""
        slot, held = self._held.get(prefix.digest, (None, None))
        return slot if held is not None and held.tokens == prefix.tokens else None

    def use(self, prefix: Prefix) -> int:
        """The slot of a prefix that was found; it is busy and young from now on."""
        slot, held = self._held[prefix.digest]
        check_match(held, prefix)
        self._held.move_to_end(prefix.digest)
        self._busy.add(slot)
        return slot

    def add(self, prefix: Prefix) -> int | None:
        """The slot to write a new snapshot to; None where it is there already, or where every slot is busy."""
        if prefix.digest in self._held:
            self._held.move_to_end(prefix.digest)
            return None
        slot = self._blank.pop() if self._blank else self._evict()
        if slot is not None:
            self._held[prefix.digest] = slot, prefix
            self._busy.add(slot)
        return slot

    def _evict(self) -> int | None:
        for digest, (slot, _) in self._held.items():
            if slot not in self._busy:
                del self._held[digest]
                self.num_evicted += 1
                return slot
        return None

    def release(self) -> None:
        """The copies are handed out: nothing is busy."""
        self._busy.clear()

    def forget(self, slot: int) -> None:
        """What the slot holds is not known any more."""
        digest = next((d for d, (held, _) in self._held.items() if held == slot), None)
        if digest is not None:
            del self._held[digest]
            self._blank.append(slot)

    def check_integrity(self) -> None:
        """BadInput unless every slot is blank or holds one prefix."""
        held = [slot for slot, _ in self._held.values()]
        problems = {
            "a slot that is blank or held twice, or lost": sorted([*self._blank, *held]) != list(self._slots),
            "an index that disagrees": any(digest != p.digest for digest, (_, p) in self._held.items()),
            "a busy slot that holds nothing": not self._busy <= set(held),
        }
        if found := [text for text, is_wrong in problems.items() if is_wrong]:
            raise BadInput("cache", "snapshots", ", ".join(found), "blank + held = all")
