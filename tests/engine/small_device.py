"""A device with memory of its own, less than a model would like: the native CPU backend, with a count of its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import finalize

import numpy as np

from samebits.backends.cpu import CpuBackend
from samebits.backends.interface import Buffer, Executable, Memory
from samebits.core.errors import OutOfMemory
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph

NAME = "small_device:SmallDevice"


class SmallDevice(CpuBackend):
    """`said_bytes` are what the device says it has, `real_bytes` what it gives to caches. Settings are of the class."""

    said_bytes = 64 << 20
    real_bytes = 64 << 20
    kept_bytes = 0  # that captured steps would take beside caches
    used_bytes = 0

    def memory(self) -> Memory:
        return Memory(self.said_bytes, self.said_bytes - type(self).used_bytes)

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> Buffer:
        taken = self.stored_bytes(spec)
        if spec.shape and len(spec.shape) == 4:  # a cache of pages
            if type(self).used_bytes + taken > self.real_bytes:
                raise OutOfMemory(f"{spec} does not fit")
            type(self).used_bytes += taken
            buffer = super().alloc(spec, layout)
            finalize(buffer, self._give_back, taken)
            return buffer
        return super().alloc(spec, layout)

    def compile(self, graph: Graph, tier: Tier) -> Executable:
        executable = super().compile(graph, tier)
        reserve = executable.reserve

        def reserved(arrays: Mapping[str, np.ndarray]) -> None:
            if type(self).used_bytes + self.kept_bytes > self.real_bytes:
                raise OutOfMemory("captured steps do not fit")
            reserve(arrays)

        executable.reserve = reserved  # type: ignore[method-assign]
        return executable

    @classmethod
    def _give_back(cls, taken: int) -> None:
        cls.used_bytes -= taken


@contextmanager
def device(said: int, real: int | None = None, kept: int = 0) -> Iterator[str]:
    """Yield the name of a backend whose device says to have `said` bytes and has `real`, of which steps keep some."""
    SmallDevice.said_bytes, SmallDevice.real_bytes, SmallDevice.kept_bytes = said, real or said, kept
    SmallDevice.used_bytes = 0
    try:
        yield NAME
    finally:
        SmallDevice.kept_bytes = 0
