"""What the machine itself can do: the rate at which threads read a buffer, and how many threads there are."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from samebits.core.errors import Unavailable
from samebits.core.processors import usable_processors
from samebits.kernels.cpp import native

SMALLEST_BUFFER = 1 << 16
MAX_QUIET_LOAD = 0.5  # for each processor, before we begin
MIN_BYTES_READ = 1 << 28  # small buffers are read several times, so that the clock can see it


def usable_threads() -> int:
    """Return how many processors this process may use, which is the default number of threads."""
    return usable_processors()


def busy_line() -> str:
    """A warning where other processes want the processors too; nothing on a quiet machine."""
    load, processors = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, usable_threads()
    if load <= MAX_QUIET_LOAD * processors:
        return ""
    return f"the machine is busy, load {load:.1f} on {processors} processors: threads that wait by spinning suffer most"


def _native_reader() -> Any:
    """The native module's `read_bandwidth(num_bytes, threads)`, bytes per second; None where it is not built."""
    try:
        return getattr(native(), "read_bandwidth", None)
    except Unavailable:
        return None


def ceiling_source() -> str:
    """ "native", or "numpy", which reads slower than the machine can."""
    return "native" if _native_reader() else "numpy"


def read_ceiling(num_bytes: int, threads: int) -> float:
    """GB/s of reading a buffer of that size with all threads."""
    if reader := _native_reader():
        return float(reader(num_bytes, threads)) / 1e9
    size = max(num_bytes, SMALLEST_BUFFER)
    parts = np.array_split(np.ones(size, np.uint8), threads)
    passes = 1 + MIN_BYTES_READ // size
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(np.max, parts))
        started = time.perf_counter()
        list(pool.map(lambda part: [np.max(part) for _ in range(passes)], parts))
        return passes * size / (time.perf_counter() - started) / 1e9
