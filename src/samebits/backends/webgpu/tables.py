"""Small arrays of a step in one memory: kernels bind all of them at once, and the host sends them in one copy."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.backends.webgpu.buffers import byte_range, plain_base, read
from samebits.backends.webgpu.device import Gpu
from samebits.backends.webgpu.step_arrays import small_arrays
from samebits.core.errors import BadInput
from samebits.graph import Graph
from samebits.kernels.wgsl.lib.launch import Operand

ALIGN = 4  # words: every array starts where a 16-byte load can


class Tables:
    """The arrays: inputs of the step of 32 bits per element, whose rows are short, and which nothing writes to.

    memory   what kernels bind. An open array lies there at its full length; what is behind its end is never read.
    """

    def __init__(self, gpu: Gpu, graph: Graph) -> None:
        self._gpu = gpu
        self._specs = small_arrays(graph)
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
        return Operand(spec.format, shape, self.memory, self._starts[name], prod(shape[1:]))

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
