"""A hash chain over the logits of an answer: link i stands for the rows of its tokens 0 to i, and for nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

START = hashlib.sha256(b"samebits logits chain 1").digest()  # what the first link follows


class LogitsChain:
    """Links so far, in hex; a link is SHA-256 of the one before it and of a row's bytes."""

    def __init__(self, start: bytes = START) -> None:
        """start: the link before the first; that of an answer which is taken up in its middle is no constant."""
        self.links: list[str] = []
        self._last = start

    def update(self, row: np.ndarray) -> None:
        """Adds the link of a row, float32 [vocab], hashed as little-endian bytes."""
        digest = hashlib.sha256(self._last)
        digest.update(np.ascontiguousarray(row, "<f4").data)
        self._last = digest.digest()
        self.links.append(digest.hexdigest())
