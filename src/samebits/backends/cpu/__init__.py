"""The native CPU backend: C++ kernels on a team of threads, the same bits as the reference on every instruction set."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from samebits.backends.cpu.buffers import ROW_MAJOR, CpuBuffer, resolved
from samebits.backends.cpu.executable import CpuExecutable
from samebits.backends.cpu.layouts import cache_layouts
from samebits.backends.cpu.lower import lower
from samebits.backends.interface import Backend, Buffer, Caps, View
from samebits.backends.support import choose_kernels
from samebits.core.errors import BadInput, OutOfMemory
from samebits.core.format import HostTensor, Packed, copy_tensor, spec_bytes
from samebits.core.processors import usable_processors
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.cpp import flushing_subnormals, native
from samebits.kernels.cpp.slabs import SLABS
from samebits.kernels.cpp.table import cpp_kernels
from samebits.kernels.cpp.weights import rows16_bytes
from samebits.kernels.record import KernelTable
from samebits.ops.evaluate import spec_of

ISA_VARIABLE = "SAMEBITS_CPU_ISA"


class CpuBackend(Backend):
    """`isa` forces an instruction set (avx512, avx2, ..., scalar); absent: SAMEBITS_CPU_ISA, or the fastest here."""

    name = "cpu"

    def __init__(self, isa: str | None = None) -> None:
        self._wanted_isa = isa or os.environ.get(ISA_VARIABLE)
        self._team: Any = None
        self._threads, self._adapts = usable_processors(), True

    @property
    def isa(self) -> str:
        """The instruction set kernels run on."""
        available = native().isas()
        if self._wanted_isa and self._wanted_isa not in available:
            raise BadInput("cpu", ISA_VARIABLE, self._wanted_isa, f"one of {', '.join(available)}")
        return self._wanted_isa or available[0]

    @property
    def team(self) -> Any:
        """The threads: started with the first step, and again in a fork or after their number was set."""
        team = self._team
        if team is None or (team.most, team.adapts) != (self._threads, self._adapts) or not team.is_here:
            self._team = native().Team(self._threads, self._adapts)
        return self._team

    def probe(self) -> Caps:
        found = [name for name, present in native().cpu_features().items() if present]
        return Caps(device=f"{self.isa}, {self._threads} threads", features=tuple(found))

    def kernels(self) -> tuple[KernelTable, ...]:
        return (cpp_kernels(),)

    def set_threads(self, count: int) -> None:
        self._choose_threads(count, adapts=False)

    def limit_threads(self, count: int) -> None:
        self._choose_threads(count, adapts=True)

    def _choose_threads(self, count: int, adapts: bool) -> None:
        if count < 1:
            raise BadInput("cpu", "threads", count, "1 or more")
        self._threads, self._adapts = count, adapts

    def flushing(self) -> AbstractContextManager[None]:
        return flushing_subnormals()

    def layout_bytes(self, spec: TensorSpec, layout: str) -> int:
        """Bytes of a tensor in a layout."""
        if layout == ROW_MAJOR:
            return spec_bytes(spec)
        if layout == "rows16":
            return rows16_bytes(spec.format, spec.upper_shape)
        try:
            return int(native().layout_bytes(spec.format, list(spec.upper_shape), layout))
        except ValueError as error:
            raise BadInput("cpu", "layout", layout, str(error)) from None

    def alloc(self, spec: TensorSpec, layout: str = ROW_MAJOR) -> CpuBuffer:
        num_bytes = self.layout_bytes(spec, layout)
        try:
            return CpuBuffer(spec, SLABS.take(num_bytes), layout)
        except MemoryError:
            raise OutOfMemory(f"a tensor of {num_bytes >> 20:,} MiB does not fit into memory") from None

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, CpuBuffer):
            raise BadInput("copy_in", "buffer", type(buffer).__name__, "a buffer of this backend")
        plain = buffer.plain
        if (
            plain is not None
            and isinstance(host, np.ndarray)
            and (host.dtype, host.shape) == (plain.dtype, plain.shape)
        ):
            plain[...] = host
            return
        if spec_of(host) != buffer.spec:
            raise BadInput("copy_in", "host", spec_of(host), str(buffer.spec))
        buffer.write(host)

    def adopt(self, host: HostTensor) -> Buffer:
        if isinstance(host, Packed) or not host.flags.c_contiguous:
            return super().adopt(host)
        return CpuBuffer(spec_of(host), host.reshape(-1).view(np.uint8))

    def adopt_packed(self, packer: Callable[[Any], Any], host: HostTensor) -> CpuBuffer:
        packed = packer(host)
        buffer = CpuBuffer(spec_of(packed), packed)
        if isinstance(host, Packed):
            buffer.scale = host.scale
        return buffer

    def trim(self) -> None:
        native().trim_memory()

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        return copy_tensor(resolved(buffer)[1])

    def peek(self, buffer: Buffer) -> HostTensor:
        plain = buffer.plain if isinstance(buffer, CpuBuffer) else None
        return resolved(buffer)[1] if plain is None else plain

    def compile(self, graph: Graph, tier: Tier) -> CpuExecutable:
        kernels = choose_kernels(self, graph, tier)
        return CpuExecutable(self, graph, lower(graph, kernels, native(), self.isa), cache_layouts(graph))


__all__ = ["CpuBackend"]
