"""A hash chain over the logits of an answer: link i stands for the rows of its tokens 0 to i, and for nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # imported with the first receipt
    from concurrent.futures import ThreadPoolExecutor

START = hashlib.sha256(b"samebits logits chain 1").digest()  # what the first link follows
MOST_THREADS = 16


def row_digest(row: np.ndarray) -> bytes:
    """SHA-256 of a row, float32 [vocab], as little-endian bytes."""
    return hashlib.sha256(np.ascontiguousarray(row, "<f4").data).digest()


def row_digests(rows: Iterable[np.ndarray]) -> list[bytes]:
    """The same of many rows, side by side on threads: what a chain hashes in order is 64 bytes per row."""
    return list(_threads().map(row_digest, rows))


@cache
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "samebits-digests")


class LogitsChain:
    """Links so far, in hex; a link is SHA-256 of the one before it and of a row's SHA-256."""

    def __init__(self, start: bytes = START) -> None:
        """start: the link before the first; that of an answer which is taken up in its middle is no constant."""
        self.links: list[str] = []
        self._last = start

    def update(self, digest: bytes) -> None:
        """Adds the link of a row whose digest this is."""
        self._last = hashlib.sha256(self._last + digest).digest()
        self.links.append(self._last.hex())
