"""A compiled graph on WebGPU: a schedule of dispatches for every set of sizes, sent in one submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.backends.bound_sizes import BoundSizes
from samebits.backends.interface import Buffer, Executable, View
from samebits.backends.webgpu.bindings import Bindings
from samebits.backends.webgpu.buffers import WebGpuBuffer
from samebits.backends.webgpu.errors import explained
from samebits.backends.webgpu.operands import Operands
from samebits.backends.webgpu.packs import Packs
from samebits.backends.webgpu.pipelines import pipelines
from samebits.backends.webgpu.schedule import Schedule, Schedules
from samebits.backends.webgpu.step_arrays import open_symbols
from samebits.backends.webgpu.tables import Tables
from samebits.backends.windows import find_windows
from samebits.core.errors import BadInput, Unsupported
from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, Node
from samebits.graph.uses import memory_roots
from samebits.kernels.record import Kernel
from samebits.kernels.wgsl.lib.launch import Call, Dispatch, Operand
from samebits.kernels.wgsl.lib.params import Misaligned

if TYPE_CHECKING:
    from samebits.backends.webgpu.backend import WebGpuBackend

AHEAD = (1, 64)  # tokens of the steps whose shaders are compiled while a model is loaded: a decode, and a prompt


class WebGpuExecutable(Executable):
    """See the interface. Kernels are asked once for each set of sizes; what they said is kept until a binding moves."""

    def __init__(self, backend: WebGpuBackend, graph: Graph, kernels: Sequence[Kernel]) -> None:
        self._backend, self._gpu, self._graph = backend, backend.gpu, graph
        windows = find_windows(graph)
        self._nodes = [(n, k) for n, k in zip(graph.nodes, kernels, strict=True) if n.outputs[0].name not in windows]
        self._specs = {v.name: v.spec for v in graph.inputs}
        self._bound_sizes = BoundSizes(backend.name, graph)
        self._roots = memory_roots(graph)
        values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
        self._limits = {d.name: d.limit for v in values for d in v.spec.shape if isinstance(d, Sym)}
        self._open = open_symbols(graph)
        self._tables = Tables(self._gpu, graph)
        self._bindings = Bindings(self._gpu, graph, self._tables)
        self._operands = Operands(self._gpu, graph, windows, self._tables, self._bindings)
        self._packs = Packs(backend, graph, self._nodes)
        self._schedules = Schedules(self._gpu, backend.faults)
        self._last_run: Schedule | None = None
        self._scratch: list[Any] = []
        self._fed: dict[str, WebGpuBuffer | None] = {}  # None for what lies in tables
        self._gathered: dict[str, Buffer | View] = {}  # small arrays that are bound and not fed
        self._dims: dict[str, int] = {}
        self._version: object = None
        if "cache" in graph.kinds.values():  # a model's step: its weights are yet to be loaded
            for num_tokens in AHEAD:
                sizes = {name: min(num_tokens if name == "T" else 1, most) for name, most in self._limits.items()}
                pipelines(self._gpu).start(self._dispatches(sizes))

    def bind(self, name: str, buffer: Buffer | View) -> None:
        self._bindings.bind(name, buffer)
        self._bound_sizes.bind(name, buffer.spec)
        self._packs.bind(name, buffer)
        self._fed.pop(name, None)
        if name in self._tables:
            self._gathered[name] = buffer

    def feed(self, arrays: Mapping[str, np.ndarray]) -> bool:
        dims: dict[str, int] = {}
        for name, array in arrays.items():
            for dim, size in zip(self._specs[name].shape, array.shape, strict=True):
                if not isinstance(dim, int):
                    dims[dim.name] = (size - dim.plus) // dim.factor
        self.prepare(dims)
        self._tables.send({name: array for name, array in arrays.items() if name in self._tables})
        for name, array in arrays.items():
            if name in self._tables:
                self._fed[name] = None
                self._gathered.pop(name, None)
                self._bound_sizes.release([name])
            else:
                self._feed_wide(name, array)
        return True

    def _feed_wide(self, name: str, array: np.ndarray) -> None:
        """An array that kernels bind by itself: in memory of our own, kept while it is large enough."""
        kept = self._fed.get(name)
        memory = kept.memory if kept and kept.memory.size >= array.nbytes else self._gpu.buffer(array.nbytes)
        buffer = WebGpuBuffer(TensorSpec(array.shape, self._specs[name].format), memory)
        self._gpu.write(memory, np.ascontiguousarray(array))
        self.bind(name, buffer)
        self._fed[name] = buffer

    def prepare(self, dims: Mapping[str, int]) -> None:
        for name, limit in self._limits.items():
            if not 0 <= dims.get(name, -1) <= limit:
                raise BadInput("webgpu", name, dims.get(name, "no size"), f"0 .. {limit}")
        self._dims = dict(dims)
        self._bound_sizes.prepare(dims)

    def run(self) -> None:
        if missing := self._bindings.unbound - self._fed.keys():
            raise BadInput("webgpu", "run", f"nothing bound to {', '.join(missing)}", "memory for every input")
        if self._limits and not self._dims:
            raise BadInput("webgpu", "run", "no sizes", f"prepare with {', '.join(self._limits)}")
        self._bound_sizes.check()
        self._packs.renew(self._bindings.bound)
        schedule = self._schedule()
        with explained("a step"):
            before, after = (self._gpu.device.create_command_encoder() for _ in range(2))
            for name, buffer in self._gathered.items():
                self._tables.gather(before, name, buffer)
            self._bindings.copy_in(before)
            through_host = self._bindings.copy_out(after, lambda name: self._operands.own(name, self._dims))
            commands = [before.finish(), schedule.commands(self._gpu), after.finish()]
            if schedule is self._last_run:  # decode goes on as it is
                schedule.encode_ahead(self._gpu)
            self._last_run = schedule
            self._gpu.queue.submit(commands)
        for source, target in through_host:
            self._bindings.store(source, target)
        self._backend.is_idle = False

    def output(self, index: int) -> Buffer:
        value = self._graph.outputs[index]
        bound = self._bindings.bound.get(value.name) or self._bindings.bound.get(self._roots[value.name])
        if bound is not None:
            return bound.base if isinstance(bound, View) else bound
        return self._operands.own(value.name, self._dims)

    def dispatches(self) -> Sequence[Dispatch]:
        """What a run at the present sizes consists of, with the present bindings; for debugging."""
        self._packs.renew(self._bindings.bound)
        return self._schedule().dispatches

    def _schedule(self) -> Schedule:
        self._bindings.settle()
        version = (self._bindings.version, self._packs.version)
        if version != self._version:
            self._schedules.clear()
            self._version = version
        shown = self._shown_sizes()
        try:
            return self._schedules.get(tuple(shown.values()), lambda: self._dispatches(shown))
        except Misaligned as error:
            if not self._bindings.set_apart(error.memory):
                raise Unsupported(str(error)) from None
            return self._schedule()

    def _shown_sizes(self) -> dict[str, int]:
        """The present sizes as kernels see them: open arrays a power of two long, so that few schedules serve all."""
        return {
            name: min(1 << max(0, self._dims[name] - 1).bit_length(), most) if name in self._open else self._dims[name]
            for name, most in self._limits.items()
        }

    def _dispatches(self, sizes: Mapping[str, int]) -> list[Dispatch]:
        """All nodes' at some sizes."""
        self._operands.set_sizes(sizes)
        return [d for node, kernel in self._nodes for d in self._dispatches_of(node, kernel)]

    def _dispatches_of(self, node: Node, kernel: Kernel) -> list[Dispatch]:
        outputs = tuple([self._operands.of(value.name) for value in node.outputs])
        if not node.writes and all(0 in out.shape for out in outputs):
            return []
        inputs = {
            name: self._packs.weight(value.name, kernel.prepack.get(name)) or self._operands.of(value.name)
            for name, value in node.inputs.items()
        }
        taken = 0

        def scratch(num_words: int) -> Operand:
            nonlocal taken
            taken += 1
            return Operand("u32", (num_words,), self._scratch_memory(taken - 1, 4 * num_words))

        return list(kernel.run(Call(inputs, outputs, node.attrs, scratch)))

    def _scratch_memory(self, number: int, num_bytes: int) -> Any:
        """One of the buffers that nodes share, each from its first dispatch to its last."""
        if number < len(self._scratch) and self._scratch[number].size >= num_bytes:
            return self._scratch[number]
        memory = self._gpu.buffer(1 << max(0, num_bytes - 1).bit_length())
        self._schedules.clear()  # those that exist hold the smaller one
        self._scratch[number : number + 1] = [memory]
        return memory
