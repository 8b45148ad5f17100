"""Events as they are sent: msgpack arrays whose places have the meanings that vLLM gave them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import numpy as np

MEDIUM = "GPU"  # routers' word for the memory that an engine computes in, whatever that is
HASH_BYTES = 8  # routers keep 64 bits


class BlockStored(msgspec.Struct, array_like=True, tag=True):
    """Pages one behind the other can be found; parent_block_hash names what comes before the first of them."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = MEDIUM
    lora_name: str | None = None


class BlockRemoved(msgspec.Struct, array_like=True, tag=True):
    """Pages can no longer be found."""

    block_hashes: list[int]
    medium: str | None = MEDIUM


class AllBlocksCleared(msgspec.Struct, array_like=True, tag=True):
    """Whatever was told before, no page can be found."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, array_like=True):
    """What one message holds."""

    ts: float  # seconds since 1970
    events: list[Event]
    data_parallel_rank: int | None = 0


class Stored(NamedTuple):
    """A change as the cache tells it: a page that can be found."""

    parent: bytes | None
    digest: bytes
    tokens: bytes


class Removed(NamedTuple):
    """One that can no longer be found."""

    digest: bytes


class Naming:
    """Names of pages outside this process, which follow from content alone.

    A digest of the cache says the numerics version, the salt and all tokens up to a page's end; `model`, which says
    what is in the model's files, joins it here. So replicas of one model have the same names for the same prompts.
    """

    def __init__(self, model: bytes, page_size: int) -> None:
        self._key, self._page_size = blake2b(model, digest_size=32).digest(), page_size

    def name(self, digest: bytes) -> int:
        return int.from_bytes(blake2b(digest, digest_size=HASH_BYTES, key=self._key).digest(), "big")

    def events(self, changes: Iterable[Stored | Removed]) -> list[Event]:
        """The changes in their order, those that belong together in one event."""
        found: list[Event] = []
        last: bytes | None = None  # the digest that the last event ends with, where that is a BlockStored
        for change in changes:
            event, name = found[-1] if found else None, self.name(change.digest)
            if isinstance(change, Removed):
                last = None
                if isinstance(event, BlockRemoved):
                    event.block_hashes.append(name)
                else:
                    found.append(BlockRemoved([name]))
                continue
            tokens = np.frombuffer(change.tokens, np.int32).tolist()
            if isinstance(event, BlockStored) and last is not None and change.parent == last:
                event.block_hashes.append(name)
                event.token_ids += tokens
            else:
                parent = None if change.parent is None else self.name(change.parent)
                found.append(BlockStored([name], parent, tokens, self._page_size))
            last = change.digest
        return found
