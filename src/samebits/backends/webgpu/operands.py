"""Where every value of a graph lies at the sizes of a step, as kernels see it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from samebits.backends.webgpu.bindings import Bindings
from samebits.backends.webgpu.buffers import WebGpuBuffer, blocks_of, operand, stored_bytes
from samebits.backends.webgpu.device import Gpu
from samebits.backends.webgpu.memory import assign
from samebits.backends.webgpu.tables import Tables
from samebits.backends.windows import Window
from samebits.core.errors import OutOfMemory
from samebits.core.format import FORMATS
from samebits.core.shapes import Dim, Sym, TensorSpec
from samebits.graph import Graph
from samebits.graph.uses import memory_roots, state_values
from samebits.kernels.wgsl.lib.launch import Operand


class Operands:
    """Memory for the values between nodes, and the places of all others."""

    def __init__(
        self, gpu: Gpu, graph: Graph, windows: Mapping[str, Window], tables: Tables, bindings: Bindings
    ) -> None:
        self._windows, self._tables, self._bindings = windows, tables, bindings
        self._specs = {v.name: v.spec for v in (*graph.inputs, *(o for n in graph.nodes for o in n.outputs))}
        roots, state = memory_roots(graph), state_values(graph)
        self._held = {name: roots[name] if roots[name] in state else name for name in self._specs}
        self._places, sizes = assign(graph, {name: w.base for name, w in windows.items()})
        self._memories = [gpu.buffer(min(size, gpu.max_binding_bytes)) for size in sizes]
        self._dims: Mapping[str, int] = {}
        self._found: dict[str, Operand] = {}  # at these sizes

    def set_sizes(self, dims: Mapping[str, int]) -> None:
        """Sizes, and places, from now on."""
        self._dims = dims
        self._found = {}

    def of(self, name: str) -> Operand:
        """A value that is no packed weight."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._operand(name, shape_at(self._specs[name].shape, self._dims))
        return found

    def own(self, name: str, dims: Mapping[str, int]) -> WebGpuBuffer:
        """A value in memory of our own, at some sizes."""
        full = WebGpuBuffer(self._specs[name], self._memory(name))
        return WebGpuBuffer(self._specs[name].at(dims), full.memory, full.num_blocks)

    def _operand(self, name: str, shape: tuple[int, ...]) -> Operand:
        if name in self._tables:
            return self._tables.operand(name, shape)
        if name in self._windows:
            return self._window(self._windows[name], shape)
        place = self._bindings.places.get(self._held[name])
        if place is not None:
            return operand(place[0], shape, place[1])
        spec = self._specs[name]
        if name not in self._places:  # an input that nothing is bound to yet
            return Operand(spec.format, shape, None, 0, prod(shape[1:]), blocks_of(spec))
        memory = self._memory(name)
        needed = stored_bytes(TensorSpec(shape, spec.format))
        if needed > memory.size:
            given = f"{name} takes {needed / 2**20:,.0f} MiB in this step"
            raise OutOfMemory(
                f"webgpu: {given}; a shader sees {memory.size >> 20} at most: needs fewer tokens in a step"
            )
        return operand(WebGpuBuffer(spec, memory), shape)

    def _memory(self, name: str) -> Any:
        return self._memories[self._places[name]]

    def _window(self, window: Window, shape: tuple[int, ...]) -> Operand:
        base = self.of(window.base)
        size = FORMATS[base.format].block_bytes
        stride = window.row_stride // size or prod(shape[1:])
        return Operand(base.format, shape, base.buffer, base.offset + window.offset // size, stride)


def shape_at(shape: tuple[Dim, ...], dims: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of one step."""
    return tuple([d.value(dims) if isinstance(d, Sym) else d for d in shape])
