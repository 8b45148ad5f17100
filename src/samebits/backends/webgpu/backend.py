"""WebGPU as a backend: WGSL kernels on the first adapter that wgpu prefers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from samebits.backends.interface import Backend, Buffer, Caps, View
from samebits.backends.support import choose_kernels
from samebits.backends.webgpu.buffers import (
    WebGpuBuffer,
    WeightBuffer,
    base_of,
    read,
    stored_bytes,
    uploaded,
    write,
)
from samebits.backends.webgpu.device import MAX_BINDING_BYTES, Gpu, gpu
from samebits.backends.webgpu.executable import WebGpuExecutable
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
    """One device of this process."""

    name = "webgpu"

    @cached_property
    def gpu(self) -> Gpu:
        return gpu()

    @cached_property
    def faults(self) -> Any:
        """A wgpu buffer of the words that shaders refuse values with."""
        return self.gpu.buffer(4 * NUM_WORDS)

    def probe(self) -> Caps:
        return Caps(self.gpu.name)

    def kernels(self) -> tuple[KernelTable, ...]:
        return (wgsl_kernels(),)

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> WebGpuBuffer:
        size = stored_bytes(spec)
        if size > MAX_BINDING_BYTES:
            raise OutOfMemory(f"{spec} takes {size / 2**20:,.0f} MiB; a tensor that is no weight has 128 at most here")
        return WebGpuBuffer(spec, self.gpu.buffer(size))

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, WebGpuBuffer) or spec_of(host) != buffer.spec:
            raise BadInput("copy_in", "host", spec_of(host), str(buffer.spec))
        write(self.gpu, buffer, host)

    def adopt_packed(self, packer: Callable[[Any], Any], host: HostTensor) -> Buffer:
        packed: PackedWeight = packer(host)
        return uploaded(self.gpu, spec_of(host), list(packed.chunks), packed.scale)

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        base = base_of(buffer)
        if isinstance(base, WeightBuffer):
            raise BadInput("webgpu", "copy_out", "a weight rearranged for kernels", "a tensor in its own format")
        host = read(self.gpu, base)
        return copy_tensor(buffer.resolve(host)) if isinstance(buffer, View) else host

    def sync(self) -> None:
        """Waits; BadInput where a shader met a value it refuses."""
        words = np.frombuffer(self.gpu.queue.read_buffer(self.faults), np.uint32)[:NUM_WORDS]
        if words.any():
            self.gpu.queue.write_buffer(self.faults, 0, bytes(4 * NUM_WORDS))
            error = raised(tuple(int(n) for n in words))
            if error is not None:
                raise error

    def compile(self, graph: Graph, tier: Tier) -> WebGpuExecutable:
        return WebGpuExecutable(self, graph, choose_kernels(self, graph, tier))


__all__ = ["WebGpuBackend"]
