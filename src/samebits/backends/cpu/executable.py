"""A compiled graph on the native backend: bind memory, run the whole step in one native call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.backends.bound_sizes import BoundSizes
from samebits.backends.cpu.buffers import ROW_MAJOR, CpuBuffer, resolved, storage
from samebits.backends.cpu.lower import Lowered
from samebits.backends.interface import Buffer, Executable, View
from samebits.core.errors import BadInput
from samebits.core.format import Packed, spec_bytes
from samebits.graph import Graph
from samebits.graph.uses import memory_roots
from samebits.kernels.cpp.table import LAYOUT_CODES

if TYPE_CHECKING:
    from samebits.backends.cpu import CpuBackend


class CpuExecutable(Executable):
    """See the interface. A view that is not contiguous is read from and written to through a copy of it."""

    def __init__(self, backend: CpuBackend, graph: Graph, lowered: Lowered, layouts: Mapping[str, str]) -> None:
        self._backend, self._graph, self._lowered, self._layouts = backend, graph, lowered, layouts
        self._bound: dict[str, Buffer | View] = {}
        self._unbound = dict.fromkeys(v.name for v in graph.inputs)
        self._staged: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # (the caller's strided memory, our copy)
        self._scaled: dict[str, tuple[CpuBuffer, np.ndarray, np.float32]] = {}  # packed inputs of a step, as placed
        self._sizes: list[int] | None = None if lowered.symbols else []
        self._results: dict[str, CpuBuffer] = {}  # in the arena, for these sizes
        self._bound_sizes = BoundSizes(backend.name, graph)
        self._roots = memory_roots(graph)
        self._specs = {v.name: v.spec for v in (*graph.inputs, *graph.outputs)}

    @property
    def program(self) -> Any:
        """The native program, for measurements."""
        return self._lowered.program

    def layout(self, name: str) -> str:
        return self._layouts.get(name, ROW_MAJOR)

    def bind(self, name: str, buffer: Buffer | View) -> None:
        base = buffer.base if isinstance(buffer, View) else buffer
        if not isinstance(base, CpuBuffer):
            raise BadInput("cpu", name, type(base).__name__, "a buffer of this backend")
        if name not in self._specs:
            raise BadInput("cpu", "bind", name, f"an input or output: {', '.join(self._specs)}")
        self._staged.pop(name, None)
        self._scaled.pop(name, None)
        if base.layout != ROW_MAJOR:
            self._check_private(name, buffer, base)
            self._place(name, base.memory, base.layout, base.scale)
        else:
            self._bind_rows(name, base, buffer)
        self._bound[name] = buffer
        self._bound_sizes.bind(name, buffer.spec)
        self._unbound.pop(name, None)

    def _bind_rows(self, name: str, base: CpuBuffer, buffer: Buffer | View) -> None:
        spec, given = self._specs[name], buffer.spec
        if given.format == "u8" != spec.format and self._graph.kinds.get(name) == "weight":
            self._bind_packed(name, base)
            return
        if not spec.takes(given):
            raise BadInput("cpu", name, str(given), str(spec))
        _, tensor = resolved(buffer)
        array = storage(tensor)
        scale = tensor.scale if isinstance(tensor, Packed) else np.float32(1)
        if not array.flags.c_contiguous:
            self._staged[name] = (array, np.ascontiguousarray(array))
            array = self._staged[name][1]
        if isinstance(tensor, Packed) and name not in self._graph.kinds:
            self._scaled[name] = (base, array, scale)
        self._place(name, array, ROW_MAJOR, scale)

    def _bind_packed(self, name: str, base: CpuBuffer) -> None:
        """A weight that `prepack` rearranged: bytes without a shape, so their number is checked."""
        needed = self._backend.layout_bytes(self._specs[name], "rows16")
        if len(base.memory) != needed:
            raise BadInput("cpu", name, f"{len(base.memory)} bytes", f"{needed} bytes, packed for native kernels")
        self._place(name, base.memory, "rows16", base.scale)

    def _check_private(self, name: str, buffer: Buffer | View, base: CpuBuffer) -> None:
        """Only the layout that all kernels agreed on for this input, and the whole of a buffer."""
        needed = f"{self._specs[name]} as {self.layout(name)}"
        if isinstance(buffer, View):
            raise BadInput("cpu", name, f"a view of memory laid out as {base.layout}", needed)
        if base.layout != self.layout(name) or base.spec != self._specs[name]:
            raise BadInput("cpu", name, f"{base.spec} as {base.layout}", needed)

    def _place(self, name: str, array: np.ndarray, layout: str, scale: np.float32) -> None:
        number = self._lowered.tensors[name]
        self._lowered.program.bind(number, array.ctypes.data, LAYOUT_CODES[layout], float(scale))

    def prepare(self, dims: Mapping[str, int]) -> None:
        sizes = [dims[name] for name in self._lowered.symbols]
        for name, size, limit in zip(self._lowered.symbols, sizes, self._lowered.limits, strict=True):
            if not 0 <= size <= limit:
                raise BadInput("cpu", name, size, f"0 .. {limit}")
        if sizes != self._sizes:
            self._results.clear()  # before the sizes change: an interrupt may come between
            self._bound_sizes.prepare(dims)
            self._sizes = sizes

    def run(self) -> None:
        if self._sizes is None:
            raise BadInput("cpu", "run", "no sizes", f"prepare with {', '.join(self._lowered.symbols)}")
        if self._unbound:
            raise BadInput("cpu", "run", f"nothing bound to {', '.join(self._unbound)}", "memory for every input")
        self._bound_sizes.check()
        for caller, copy in self._staged.values():
            copy[...] = caller
        for name, (base, array, scale) in self._scaled.items():
            if base.scale != scale:  # another tensor was copied in
                self._place(name, array, ROW_MAJOR, base.scale)
                self._scaled[name] = (base, array, base.scale)
        failure = self._lowered.program.run(self._backend.team, self._sizes)
        if failure is not None:
            raise BadInput(*failure)
        for caller, copy in self._staged.values():
            if caller.flags.writeable:
                caller[...] = copy

    def output(self, index: int) -> Buffer:
        value = self._graph.outputs[index]
        bound = self._bound.get(value.name) or self._bound.get(self._roots[value.name])
        if bound is not None:
            return bound.base if isinstance(bound, View) else bound
        if value.name not in self._results:
            dims = dict(zip(self._lowered.symbols, self._sizes or (), strict=True))
            spec = value.spec.at(dims)
            self._results[value.name] = CpuBuffer(spec, self._lowered.memory(value.name, spec_bytes(spec)))
        return self._results[value.name]
