"""CUDA and ROCm: Triton kernels on memory, streams and graphs of torch.

With TRITON_INTERPRET=1 the `cuda` backend runs on the host, in Triton's interpreter: slow, for tests without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch

from samebits.backends.gpu.ahead import AheadCompiler
from samebits.backends.gpu.buffers import GpuBuffer, copy_into, empty, pinned_copy, resolved, to_device, to_host
from samebits.backends.gpu.executable import GpuExecutable
from samebits.backends.gpu.memory import explained, free_bytes
from samebits.backends.gpu.probe import driver_version, probed, require_gpu
from samebits.backends.gpu.timing import GpuStopwatch
from samebits.backends.gpu.workspace import gpu_workspace
from samebits.backends.interface import Backend, Buffer, Caps, Compilation, CompileProgress, Memory, View, Workspace
from samebits.backends.support import choose_kernels
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import KernelTable
from samebits.kernels.triton.lib.devices import MEMORYLESS, DeviceFacts, facts_of
from samebits.kernels.triton.lib.faults import fault_words, raise_if_any, raise_if_noted
from samebits.kernels.triton.lib.flushing import flushing, refusal
from samebits.kernels.triton.lib.registry import INTERPRETED
from samebits.kernels.triton.table import kernels_for
from samebits.ops.evaluate import spec_of

UNBOUNDED_BYTES = 1 << 50  # of a GPU that is described alone: kernels for it do not depend on its memory


class GpuBackend(Backend):
    """One GPU, the first that torch sees (CUDA_VISIBLE_DEVICES chooses)."""

    compiles_kernels = not INTERPRETED
    flushing_compiles = True
    runs_ahead = True
    default_sequences = 128  # more gain little: decodes of a 7.4B model on an H200 are bound by their products then
    step_tokens = 2048  # some 60 ms of a 7.4B model on an H200, at the 34,500 tokens/s of larger steps

    @cached_property
    def device(self) -> torch.device:
        return torch.device("cpu") if INTERPRETED else require_gpu(self.name)

    @cached_property
    def facts(self) -> DeviceFacts | None:
        """Facts about the GPU on which launches and the choice of kernels depend; None in the interpreter."""
        return None if INTERPRETED else facts_of(self.device)

    def probe(self) -> Caps:
        device = self.device
        if INTERPRETED:
            return Caps(device="Triton's interpreter on the host", features=("slow: for tests without a GPU",))
        facts = torch.cuda.get_device_properties(device)
        arch = facts.gcnArchName if torch.version.hip else f"sm_{facts.major}{facts.minor}"
        features = (arch, f"{facts.multi_processor_count} multiprocessors", f"torch {torch.__version__}")
        found, refuted = probed(device)
        return Caps(facts.name, facts.total_memory, (*features, *found), refuted, driver_version())

    def kernels(self) -> tuple[KernelTable, ...]:
        return (kernels_for(self.facts),)

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> GpuBuffer:
        with explained(self.device, str(spec), spec_bytes(spec)):
            return GpuBuffer(spec, empty(spec, self.device))

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, GpuBuffer) or spec_of(host) != buffer.spec:
            raise BadInput("copy_in", "host", spec_of(host), str(buffer.spec))
        source = to_device(host, self.device)
        scale = getattr(source, "scale", 1.0)
        copy_into(buffer.tensor, source)
        if scale != getattr(buffer.tensor, "scale", 1.0):
            buffer.tensor = type(source)(source.format, buffer.tensor.data, scale)

    def adopt(self, host: HostTensor) -> Buffer:
        with explained(self.device, str(spec_of(host))):
            return GpuBuffer(spec_of(host), to_device(host, self.device))

    def adopt_packed(self, packer: Callable[[Any], Any], host: HostTensor) -> Buffer:
        with explained(self.device, f"a weight {spec_of(host)}", spec_bytes(spec_of(host))):
            return GpuBuffer(spec_of(host), packer(to_device(host, self.device)))

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        return to_host(resolved(buffer))

    def memory(self) -> Memory:
        if self.device.type == MEMORYLESS.type:
            return Memory(UNBOUNDED_BYTES, UNBOUNDED_BYTES)
        if self.device.type != "cuda":
            return super().memory()
        free, total = free_bytes(self.device)
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return Memory(total, free + cached)

    def workspace(self, graph: Graph) -> Workspace:
        return gpu_workspace(graph)

    def trim(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def sync(self) -> None:
        """Waits; BadInput where a kernel met a value it refuses."""
        raise_if_any(self.device)

    def result(self, buffer: Buffer) -> HostTensor:
        tensor = resolved(buffer)
        if self.device.type != "cuda" or not isinstance(tensor, torch.Tensor):
            return super().result(buffer)
        words, host = (pinned_copy(t) for t in (fault_words(self.device), tensor))
        torch.cuda.current_stream(self.device).synchronize()
        raise_if_noted(words.tolist(), self.device)
        return to_host(host)

    def stopwatch(self) -> GpuStopwatch | None:
        return GpuStopwatch(self.device) if self.device.type == "cuda" else None

    def flushing(self) -> AbstractContextManager[None] | None:
        return None if INTERPRETED or refusal() else flushing()

    @cached_property
    def ahead(self) -> AheadCompiler | None:
        """What compiles for this device before kernels are launched; None in the interpreter."""
        return AheadCompiler(self.facts) if self.facts else None

    def compile(self, graph: Graph, tier: Tier) -> GpuExecutable:
        start_compiling = self.ahead.start if self.ahead else None
        return GpuExecutable(graph, choose_kernels(self, graph, tier), self.device, start_compiling)

    def await_compiled(self, progress: CompileProgress | None = None, everything: bool = False) -> Compilation:
        return self.ahead.wait(progress, everything) if self.ahead else Compilation()


class CudaBackend(GpuBackend):
    name = "cuda"


class DescribedCuda(CudaBackend):
    """A GPU that is not here: kernels are compiled for it, and nothing runs."""

    device = MEMORYLESS

    def __init__(self, facts: DeviceFacts) -> None:
        self._facts = facts

    @cached_property
    def facts(self) -> DeviceFacts:
        return self._facts

    @cached_property
    def ahead(self) -> AheadCompiler:
        return AheadCompiler(self.facts)

    def probe(self) -> Caps:
        return Caps(f"a GPU elsewhere, sm_{self.facts.target.arch}")


class RocmBackend(GpuBackend):
    name = "rocm"

    @cached_property
    def device(self) -> torch.device:
        return require_gpu(self.name)  # the interpreter is cuda's


__all__ = ["CudaBackend", "DescribedCuda", "RocmBackend"]
