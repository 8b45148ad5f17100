"""Which replicas have computed which prefixes of prompts, or so: they may have let go of some since."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from samebits.core.prefix_names import first_name, next_name

BLOCK_TOKENS = 64
MAX_BLOCKS = 1 << 16  # that are remembered: four million tokens


class Prefixes:
    """Blocks of prompts by the hash of all up to their end, and the replicas that were given them."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._owners: OrderedDict[bytes, set[str]] = OrderedDict()  # the one used last is the last
        self._num_blocks: dict[str, int] = {}

    def blocks(self, prompt: np.ndarray, salt: bytes) -> list[bytes]:
        """Names of a prompt's whole blocks; those of another salt have others."""
        name, names = first_name(salt), []
        for end in range(BLOCK_TOKENS, len(prompt) + 1, BLOCK_TOKENS):
            name = next_name(name, prompt[end - BLOCK_TOKENS : end].tobytes())
            names.append(name)
        return names

    def longest(self, blocks: list[bytes], replicas: Iterable[str]) -> tuple[int, set[str]]:
        """(blocks, replicas) of the longest prefix that any of these replicas was given; (0, none) without one."""
        left, best, count = set(replicas), set[str](), 0
        for i, name in enumerate(blocks, 1):
            left &= self._owners.get(name, set())
            if not left:
                break
            best, count = set(left), i
        return count, best

    def note(self, blocks: list[bytes], replica: str) -> None:
        """The replica is given a prompt of these blocks."""
        for name in blocks:
            owners = self._owners.setdefault(name, set())
            if replica not in owners:
                owners.add(replica)
                self._num_blocks[replica] = self._num_blocks.get(replica, 0) + 1
            self._owners.move_to_end(name)
        while len(self._owners) > self._max_blocks:
            _, owners = self._owners.popitem(last=False)
            for owner in owners:
                self._num_blocks[owner] -= 1

    def num_blocks(self, replica: str) -> int:
        return self._num_blocks.get(replica, 0)

    def keep(self, replicas: set[str]) -> None:
        """Forgets all other replicas."""
        gone = self._num_blocks.keys() - replicas
        if not gone:
            return
        for name, owners in list(self._owners.items()):
            owners -= gone
            if not owners:
                del self._owners[name]
        for replica in gone:
            del self._num_blocks[replica]
