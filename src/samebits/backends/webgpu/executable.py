"""A compiled graph on WebGPU: a schedule of dispatches for every set of sizes, sent in one submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.backends.interface import Buffer, Executable, View
from samebits.backends.webgpu.buffers import (
    WebGpuBuffer,
    WeightBuffer,
    base_of,
    first_row_of,
    is_reached_in_place,
    operand,
    stored_bytes,
    write,
)
from samebits.backends.webgpu.device import explained
from samebits.backends.webgpu.memory import assign
from samebits.backends.webgpu.schedule import Schedule
from samebits.backends.windows import find_windows
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, HostTensor, Packed
from samebits.core.shapes import TensorSpec
from samebits.graph import Graph, Node
from samebits.graph.uses import memory_roots, overwritten_at, state_values
from samebits.kernels.record import Kernel
from samebits.kernels.wgsl.lib.launch import Call, Dispatch, Operand, Weight

if TYPE_CHECKING:
    from samebits.backends.webgpu.backend import WebGpuBackend

MOST_SCHEDULES = 64  # kept, by sizes
TABLE_FORMATS = ("i32", "u32", "f32")
TABLE_WIDTH = 4  # elements of a row of a step's small arrays, at most
TABLE_ALIGN_BYTES = 16


class WebGpuExecutable(Executable):
    """See the interface. A view that is no range of rows, or begins inside a word, goes through a copy of it."""

    def __init__(self, backend: WebGpuBackend, graph: Graph, kernels: Sequence[Kernel]) -> None:
        self._backend, self._gpu, self._graph = backend, backend.gpu, graph
        self._windows = find_windows(graph)
        self._nodes = [
            (n, k) for n, k in zip(graph.nodes, kernels, strict=True) if n.outputs[0].name not in self._windows
        ]
        self._specs = {v.name: v.spec for v in (*graph.inputs, *graph.outputs)}
        self._values = {v.name: v.spec for v in (*graph.inputs, *(o for n in graph.nodes for o in n.outputs))}
        self._roots, self._state = memory_roots(graph), state_values(graph)
        self._places, sizes = assign(graph, {name: w.base for name, w in self._windows.items()})
        self._memories = [self._gpu.buffer(size) for size in sizes]
        self._packers = _packers(graph, self._nodes)
        self._tables = _table_offsets(graph)
        self._table_memory = self._gpu.buffer(max((end for _, end in self._tables.values()), default=0))
        self._scratch: list[Any] = []
        self._bound: dict[str, Buffer | View] = {}
        self._staged: dict[str, WebGpuBuffer] = {}  # copies of bound views, and weights packed for this run
        self._packed: dict[str, WeightBuffer] = {}
        self._fed: set[str] = set()
        self._dims: dict[str, int] = {}
        self._schedules: dict[tuple[tuple[str, int], ...], Schedule] = {}

    def bind(self, name: str, buffer: Buffer | View) -> None:
        if name not in self._specs:
            raise BadInput("webgpu", "bind", name, f"an input or output: {', '.join(self._specs)}")
        base_of(buffer)
        if not self._specs[name].takes(buffer.spec):
            raise BadInput("webgpu", name, str(buffer.spec), str(self._specs[name]))
        self._fed.discard(name)
        old = self._bound.get(name)
        self._bound[name] = buffer
        if old is None or (name not in self._tables and _place(old) != _place(buffer)):
            self._schedules.clear()
            self._staged.pop(name, None)
        if isinstance(buffer, View) and name not in self._tables and not is_reached_in_place(buffer):
            self._staged[name] = WebGpuBuffer(buffer.spec, self._gpu.buffer(stored_bytes(buffer.spec)))

    def feed(self, arrays: Mapping[str, np.ndarray]) -> bool:
        if not all(name in self._tables for name in arrays):
            return False
        start = min(self._tables[name][0] for name in arrays)
        end = max(self._tables[name][0] + array.nbytes for name, array in arrays.items())
        words = np.zeros(-(-(end - start) // 4), np.uint32)
        dims: dict[str, int] = {}
        for name, array in arrays.items():
            at = (self._tables[name][0] - start) // 4
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
            words[at : at + len(flat)] = flat
            for symbol, size in zip(self._specs[name].shape, array.shape, strict=True):
                if not isinstance(symbol, int):
                    dims[symbol.name] = (size - symbol.plus) // symbol.factor
        self._gpu.queue.write_buffer(self._table_memory, start, words)
        self._fed = set(arrays)
        self._dims = dims
        return True

    def prepare(self, dims: Mapping[str, int]) -> None:
        self._dims = dict(dims)

    def run(self) -> None:
        missing = [v.name for v in self._graph.inputs if v.name not in self._bound and v.name not in self._fed]
        if missing:
            raise BadInput("webgpu", "run", f"nothing bound to {', '.join(missing)}", "memory for every input")
        self._stage_in()
        schedule = self._schedule()
        with explained("a step"):
            encoder = self._gpu.device.create_command_encoder()
            self._gather(encoder)
            schedule.encode(encoder)
            self._gpu.queue.submit([encoder.finish()])
        self._stage_out()

    def output(self, index: int) -> Buffer:
        value = self._graph.outputs[index]
        bound = self._bound.get(value.name) or self._bound.get(self._roots[value.name])
        if bound is not None:
            return bound.base if isinstance(bound, View) else bound
        return WebGpuBuffer(value.spec.at(self._dims), self._memories[self._places[value.name]])

    def _gather(self, encoder: Any) -> None:
        """Copies small arrays that were bound one by one to where all of them lie together."""
        for name, (start, _) in self._tables.items():
            buffer = self._bound.get(name)
            if name in self._fed or buffer is None:
                continue
            first = first_row_of(buffer) if isinstance(buffer, View) else 0
            if first is None:
                raise BadInput("webgpu", name, "a view that is no range of rows", "rows of a buffer")
            base = base_of(buffer)
            size = stored_bytes(buffer.spec)
            if size and isinstance(base, WebGpuBuffer):
                row = prod(buffer.spec.upper_shape[1:]) * 4
                encoder.copy_buffer_to_buffer(base.memory, first * row, self._table_memory, start, size)

    def _stage_in(self) -> None:
        """Copies of views that kernels cannot read in place, and weights of this step packed for kernels."""
        for name, copy in self._staged.items():
            write(self._gpu, copy, self._host(name))
        for name, packer in self._packers.items():
            bound = self._bound[name]
            if isinstance(base_of(bound), WeightBuffer) or (name in self._packed and name in self._graph.weights):
                continue
            packed = self._backend.adopt_packed(packer, self._host(name))
            if isinstance(packed, WeightBuffer):
                self._packed[name] = packed
                self._schedules.clear()

    def _stage_out(self) -> None:
        written = {self._roots[name] for name in overwritten_at(self._graph)} | {v.name for v in self._graph.outputs}
        for name, copy in self._staged.items():
            view = self._bound[name]
            if name in written and isinstance(view, View):
                whole = self._backend.copy_out(view.base)
                part, result = view.resolve(whole), self._backend.copy_out(copy)
                _storage(part)[...] = _storage(result)
                self._backend.copy_in(view.base, whole)

    def _host(self, name: str) -> HostTensor:
        return self._backend.copy_out(self._bound[name])

    def _schedule(self) -> Schedule:
        key = tuple(sorted(self._dims.items()))
        found = self._schedules.pop(key, None)
        if found is None:
            dispatches = [d for node, kernel in self._nodes for d in self._dispatches(node, kernel)]
            with explained("a step"):
                found = Schedule(self._gpu, dispatches, self._backend.faults)
            if len(self._schedules) >= MOST_SCHEDULES:
                self._schedules.pop(next(iter(self._schedules)))
        self._schedules[key] = found  # the newest last
        return found

    def _dispatches(self, node: Node, kernel: Kernel) -> list[Dispatch]:
        inputs = {name: self._input(value.name) for name, value in node.inputs.items()}
        outputs = tuple(self._operand(value.name) for value in node.outputs)
        taken: list[Any] = []

        def scratch(num_words: int) -> Operand:
            number = len(taken)
            if number == len(self._scratch):
                self._scratch.append(self._gpu.buffer(4 * num_words))
            elif self._scratch[number].size < 4 * num_words:
                self._scratch[number] = self._gpu.buffer(4 * num_words)
            taken.append(self._scratch[number])
            return Operand("u32", (num_words,), self._scratch[number])

        found: list[Dispatch] = kernel.run(Call(inputs, outputs, node.attrs, scratch))
        return found

    def _input(self, name: str) -> Operand | Weight:
        if name in self._packed:
            return self._packed[name].weight
        bound = self._bound.get(name)
        if bound is not None and isinstance(base := base_of(bound), WeightBuffer):
            return base.weight
        return self._operand(name)

    def _operand(self, name: str) -> Operand:
        """A value's memory at this step's sizes."""
        spec = self._values[name].at(self._dims)
        shape = spec.upper_shape
        if name in self._tables:
            row = prod(shape[1:])
            return Operand(spec.format, shape, self._table_memory, self._tables[name][0] // 4, row)
        if name in self._windows:
            return self._window(name, shape)
        held = self._roots[name] if self._roots[name] in self._state else name
        bound = self._bound.get(held)
        if bound is None:
            return operand(WebGpuBuffer(self._values[name], self._memories[self._places[name]]), shape)
        if held in self._staged:
            return operand(self._staged[held], shape)
        base = base_of(bound)
        if isinstance(base, WeightBuffer):
            raise BadInput("webgpu", name, "a weight rearranged for kernels", "a tensor in its own format")
        return operand(base, shape, (first_row_of(bound) or 0) if isinstance(bound, View) else 0)

    def _window(self, name: str, shape: tuple[int, ...]) -> Operand:
        window = self._windows[name]
        base = self._operand(window.base)
        size = FORMATS[base.format].block_bytes
        stride = window.row_stride // size or prod(shape[1:])
        return Operand(base.format, shape, base.buffer, base.offset + window.offset // size, stride)


def _place(buffer: Buffer | View) -> object:
    """Equal for bindings that need no new schedule."""
    base = base_of(buffer)
    memory = id(base.memory) if isinstance(base, WebGpuBuffer) else id(base)
    return memory, buffer.spec, buffer.steps if isinstance(buffer, View) else ()


def _packers(graph: Graph, nodes: Sequence[tuple[Node, Kernel]]) -> dict[str, Any]:
    """Graph input -> the `prepack` of the kernels that read it."""
    inputs = {v.name for v in graph.inputs}
    return {
        node.inputs[name].name: packer
        for node, kernel in nodes
        for name, packer in kernel.prepack.items()
        if name in node.inputs and node.inputs[name].name in inputs
    }


def _table_offsets(graph: Graph) -> dict[str, tuple[int, int]]:
    """Small arrays of a step -> the bytes they take in the memory that all of them share: (start, end)."""
    written = overwritten_at(graph)
    offsets: dict[str, tuple[int, int]] = {}
    end = 0
    for value in graph.inputs:
        spec: TensorSpec = value.spec
        is_step = graph.kinds.get(value.name, "step") == "step" and value.name not in written
        if is_step and spec.format in TABLE_FORMATS and spec.shape and prod(spec.upper_shape[1:]) <= TABLE_WIDTH:
            start = -(-end // TABLE_ALIGN_BYTES) * TABLE_ALIGN_BYTES
            end = start + stored_bytes(spec)
            offsets[value.name] = (start, end)
    return offsets


def _storage(tensor: HostTensor) -> np.ndarray:
    return tensor.data if isinstance(tensor, Packed) else tensor
