"""The null backend: computes nothing, on the strangest device we can think of.

Its memory is tiled 32 x 32, cannot be mapped, and is only reached by whole-tensor copies. It finds code that
assumes addresses, strides or row-major order, and it lets schedulers and servers be measured without a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn

import numpy as np

from samebits.backends.bound_sizes import BoundSizes
from samebits.backends.interface import Backend, Buffer, Caps, Executable, View
from samebits.backends.support import choose_kernels
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed, spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.graph.uses import memory_roots
from samebits.kernels.record import Kernel, KernelTable
from samebits.ops import OPS
from samebits.ops.evaluate import spec_of

TILE = 32


class TiledBuffer(Buffer):
    """Bytes of a tensor as a [rows, row bytes] matrix cut into 32 x 32 tiles, tile after tile."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self._rows = math.prod(spec.upper_shape[:-1])
        self._row_bytes = FORMATS[spec.format].row_bytes(spec.upper_shape[-1]) if spec.shape else spec_bytes(spec)
        self._scale = np.float32(1)
        self._tiles: np.ndarray | None = None  # all zeros until something is written

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise BadInput("null", "buffer", "a request to map it", "copy_out: this memory has no address")

    def write(self, data: np.ndarray, scale: np.float32) -> None:
        rows, cols = (-(-count // TILE) * TILE for count in (self._rows, self._row_bytes))
        padded = np.zeros((rows, cols), np.uint8)
        padded[: self._rows, : self._row_bytes] = data.reshape(self._rows, self._row_bytes)
        self._tiles = padded.reshape(rows // TILE, TILE, cols // TILE, TILE).swapaxes(1, 2).copy()
        self._scale = scale

    def read(self) -> tuple[np.ndarray, np.float32]:
        if self._tiles is None:
            return np.zeros((self._rows, self._row_bytes), np.uint8), self._scale
        tall, wide = self._tiles.shape[:2]
        rows = self._tiles.swapaxes(1, 2).reshape(tall * TILE, wide * TILE)
        return rows[: self._rows, : self._row_bytes].copy(), self._scale


def _nothing(**_: Any) -> tuple[()]:
    """Stands for any kernel; the executable never calls it."""
    return ()


@cache
def null_kernels() -> KernelTable:
    table = KernelTable("null")
    for op in OPS:
        table.add(Kernel(op, "null", Tier.NONE, _nothing))
    return table


class NullExecutable(Executable):
    """Checks that every node has a kernel and every input its memory; leaves outputs at zero."""

    def __init__(self, backend: Backend, graph: Graph, tier: Tier) -> None:
        choose_kernels(backend, graph, tier)
        self._graph = graph
        self._bound: dict[str, Buffer | View] = {}
        self._bound_sizes = BoundSizes(backend.name, graph)
        self._roots = memory_roots(graph)
        made = {v.name: v.spec for node in graph.nodes for v in node.outputs}
        roots = {self._roots[v.name] for v in graph.outputs}
        self._outputs = {name: backend.alloc(spec) for name, spec in made.items() if name in roots}

    def bind(self, name: str, buffer: Buffer | View) -> None:
        self._bound[name] = buffer
        self._bound_sizes.bind(name, buffer.spec)

    def prepare(self, dims: Mapping[str, int]) -> None:
        self._bound_sizes.prepare(dims)

    def run(self) -> None:
        self._bound_sizes.check()
        missing = [v.name for v in self._graph.inputs if v.name not in self._bound]
        if missing:
            raise BadInput("null", missing[0], "no buffer", "bind() before run()")

    def output(self, index: int) -> Buffer:
        name = self._graph.outputs[index].name
        root = self._roots[name]
        bound = self._bound.get(name) or self._bound.get(root) or self._outputs[root]
        return bound.base if isinstance(bound, View) else bound


class NullBackend(Backend):
    name = "null"

    def probe(self) -> Caps:
        return Caps(device="nothing, tiled 32 x 32", features=("computes nothing", "unmappable memory"))

    def kernels(self) -> tuple[KernelTable, ...]:
        return (null_kernels(),)

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> TiledBuffer:
        return TiledBuffer(spec)

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, TiledBuffer) or spec_of(host) != buffer.spec:
            raise BadInput("copy_in", "host", spec_of(host), str(buffer.spec))
        if isinstance(host, Packed):
            buffer.write(np.ascontiguousarray(host.data), host.scale)
        else:
            buffer.write(
                np.ascontiguousarray(host).view(np.uint8) if host.ndim else host.reshape(1).view(np.uint8),
                np.float32(1),
            )

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        base = buffer.base if isinstance(buffer, View) else buffer
        if not isinstance(base, TiledBuffer):
            raise BadInput("copy_out", "buffer", type(base).__name__, "a buffer of this backend")
        data, scale = base.read()
        shape, fmt = base.spec.upper_shape, FORMATS[base.spec.format]
        host: HostTensor
        if isinstance(fmt, BlockFormat):
            host = Packed(fmt, data.reshape(*shape[:-1], data.shape[-1]), scale)
        else:
            host = np.frombuffer(data, fmt.dtype).reshape(shape)
        return buffer.resolve(host) if isinstance(buffer, View) else host

    def compile(self, graph: Graph, tier: Tier) -> NullExecutable:
        return NullExecutable(self, graph, tier)
