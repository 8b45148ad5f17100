"""Small arrays of a step in one memory: kernels bind all of them at once, and the host sends them in one copy."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.backends.webgpu.buffers import byte_range, plain_base, read
from samebits.backends.webgpu.device import Gpu
from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.step import PAGES
from samebits.graph import Graph
from samebits.graph.uses import overwritten_at
from samebits.kernels.wgsl.lib.launch import Operand

FORMATS = ("i32", "u32", "f32")
MAX_WIDTH = 4  # elements of a row
ALIGN = 4  # words: every array starts where a 16-byte load can


def is_open(name: str) -> bool:
    """Whether an array's end is known from others: page ids, whose number changes all the time."""
    return name == PAGES or name.startswith(f"{PAGES}.")


def open_symbols(graph: Graph) -> set[str]:
    """Symbols of no other sizes than the lengths of open arrays: no kernel sees their values, so none is asked anew."""
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    uses = [(v.name, d.name) for v in values for d in v.spec.shape if isinstance(d, Sym)]
    return {symbol for _, symbol in uses} - {symbol for name, symbol in uses if not is_open(name)}


class Tables:
    """The arrays: inputs of the step of 32 bits per element, whose rows are short, and which nothing writes to.

    memory   what kernels bind. An open array lies there at its full length; what is behind its end is never read.
    """

    def __init__(self, gpu: Gpu, graph: Graph) -> None:
        self._gpu = gpu
        self._specs = _chosen(graph)
        self._starts: dict[str, int] = {}  # words
        end = 0
        for name, spec in self._specs.items():
            self._starts[name] = end
            end = -(-(end + spec.num_elements) // ALIGN) * ALIGN
        self._words = np.zeros(end, np.uint32)
        self.memory = gpu.buffer(4 * end)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def operand(self, name: str, shape: tuple[int, ...]) -> Operand:
        """An array as kernels see it."""
        spec = self._specs[name]
        shown = spec.upper_shape if is_open(name) else shape
        return Operand(spec.format, shown, self.memory, self._starts[name], prod(shape[1:]))

    def send(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copies these to the device. BadInput for one that is longer than its bound."""
        first, last = len(self._words), 0
        for name, array in arrays.items():
            start, spec = self._starts[name], self._specs[name]
            if array.size > spec.num_elements:
                raise BadInput("step", name, f"{len(array)} entries", f"at most {spec.upper_shape[0]}")
            end = start + array.size
            self._words[start:end] = array.reshape(-1).view(np.uint32)
            first, last = min(first, start), max(last, end)
        if first < last:
            self._gpu.write(self.memory, self._words[first:last], 4 * first)

    def gather(self, encoder: Any, name: str, buffer: Buffer | View) -> None:
        """Adds the copy of an array that was bound by itself."""
        found = byte_range(buffer)
        if found is None:  # permuted, say
            whole = read(self._gpu, plain_base(buffer))
            host = buffer.resolve(whole) if isinstance(buffer, View) else whole
            self.send({name: np.ascontiguousarray(host)})
        elif found[1]:
            encoder.copy_buffer_to_buffer(
                plain_base(buffer).memory, found[0], self.memory, 4 * self._starts[name], found[1]
            )


def _chosen(graph: Graph) -> dict[str, TensorSpec]:
    """The arrays that lie in tables, those with an open end last: only what is used of them travels."""
    fixed = {v.name for v in graph.outputs} | overwritten_at(graph).keys()
    steps = {v.name: v.spec for v in graph.inputs if graph.kinds.get(v.name, "step") == "step"}
    small = {
        name: spec
        for name, spec in steps.items()
        if name not in fixed and spec.format in FORMATS and spec.shape and prod(spec.upper_shape[1:]) <= MAX_WIDTH
    }
    return dict(sorted(small.items(), key=lambda item: is_open(item[0])))
