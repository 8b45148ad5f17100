"""Where packed weights and buffers get their memory from: cache-line aligned, in huge pages where that pays."""

from __future__ import annotations

from threading import Lock

import numpy as np

ALIGNMENT = 64


def aligned_bytes(count: int) -> np.ndarray:
    """uint8 [count] at a multiple of a cache line; pages are touched only when written."""
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count]


class Slabs:
    """Buffers of middling size side by side in slabs large enough for huge pages.

    A model of many small weights would otherwise miss the address cache at every one. A slab is freed when the
    last buffer in it is.
    """

    SLAB_BYTES, SMALLEST, LARGEST = 64 << 20, 32 << 10, 16 << 20

    def __init__(self) -> None:
        self._slab, self._used, self._lock = aligned_bytes(0), 0, Lock()

    def take(self, count: int) -> np.ndarray:
        """uint8 [count], as aligned_bytes gives it."""
        if not self.SMALLEST <= count <= self.LARGEST:
            return aligned_bytes(count)
        with self._lock:
            if self._used + count > len(self._slab):
                self._slab, self._used = aligned_bytes(self.SLAB_BYTES), 0
            start = self._used
            self._used += -(-count // ALIGNMENT) * ALIGNMENT
            return self._slab[start : start + count]


SLABS = Slabs()
