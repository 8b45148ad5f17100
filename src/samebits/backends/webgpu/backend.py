"""WebGPU as a backend: WGSL kernels on the first adapter that wgpu prefers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from samebits.backends.interface import Backend, Buffer, Caps, Memory, View
from samebits.backends.support import choose_kernels
from samebits.backends.webgpu.buffers import (
    WebGpuBuffer,
    WeightBuffer,
    plain_base,
    read,
    stored_bytes,
    uploaded,
    write,
)
from samebits.backends.webgpu.device import Gpu, gpu
from samebits.backends.webgpu.errors import raise_unraised
from samebits.backends.webgpu.executable import WebGpuExecutable
from samebits.backends.webgpu.probe import probed
from samebits.backends.webgpu.shaders import shaders_of
from samebits.core.errors import BadInput, OutOfMemory
from samebits.core.format import HostTensor, copy_tensor
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import KernelTable
from samebits.kernels.wgsl.lib.faults import NUM_WORDS, raised
from samebits.kernels.wgsl.lib.packing import PackedWeight
from samebits.kernels.wgsl.table import wgsl_kernels
from samebits.ops.evaluate import spec_of


class WebGpuBackend(Backend):
    """One device of this process.

    is_idle   whether nothing was launched since the last `sync`
    """

    name = "webgpu"
    is_idle = True

    @cached_property
    def gpu(self) -> Gpu:
        return gpu()

    @cached_property
    def faults(self) -> Any:
        """A wgpu buffer of the words that shaders refuse values with."""
        return self.gpu.buffer(4 * NUM_WORDS)

    def probe(self) -> Caps:
        features, refuted = probed(self.gpu)
        return Caps(self.gpu.name, None, features, refuted, self.gpu.driver)

    def kernels(self) -> tuple[KernelTable, ...]:
        return (wgsl_kernels(),)

    def memory(self) -> Memory:
        """Return the host's memory: WebGPU does not tell the adapter's."""
        return replace(super().memory(), max_tensor_bytes=self.gpu.max_binding_bytes)

    def stored_bytes(self, spec: TensorSpec) -> int:
        return stored_bytes(spec)

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> WebGpuBuffer:
        size, most = stored_bytes(spec), self.gpu.max_binding_bytes
        if size > most:
            raise OutOfMemory(f"webgpu: {spec} takes {size / 2**20:,.0f} MiB; a shader sees {most >> 20} at most")
        return WebGpuBuffer(spec, self.gpu.buffer(size))

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, WebGpuBuffer) or spec_of(host) != buffer.spec:
            raise BadInput("copy_in", "host", spec_of(host), str(buffer.spec))
        write(self.gpu, buffer, host)

    def adopt_packed(self, packer: Callable[[Any], Any], host: HostTensor) -> WeightBuffer:
        packed: PackedWeight = packer(host)
        return uploaded(self.gpu, spec_of(host), packed.chunks, packed.scale)

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        host = read(self.gpu, plain_base(buffer))
        return copy_tensor(buffer.resolve(host)) if isinstance(buffer, View) else host

    def sync(self) -> None:
        """Waits; BadInput where a shader met a value it refuses."""
        if not self.is_idle:
            words = self.gpu.read(self.faults, 4 * NUM_WORDS).view(np.uint32)
            self.is_idle = True
            if words.any():
                self.gpu.write(self.faults, np.zeros(NUM_WORDS, np.uint32))
                if (error := raised(tuple(int(n) for n in words))) is not None:
                    raise error
        raise_unraised()

    def sources(
        self, graph: Graph, numbers: set[int], dims: Mapping[str, int], tier: Tier
    ) -> Iterator[tuple[str, object]]:
        return ((shader.text, shader) for shader in shaders_of(self, graph, numbers, dims, tier))

    def compile(self, graph: Graph, tier: Tier) -> WebGpuExecutable:
        return WebGpuExecutable(self, graph, choose_kernels(self, graph, tier))


__all__ = ["WebGpuBackend"]
