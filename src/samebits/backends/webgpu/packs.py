"""Weights as kernels want them: packed by the engine when it loads a model, else packed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from samebits.backends.interface import Buffer, View
from samebits.backends.webgpu.buffers import WeightBuffer, base_of
from samebits.graph import Graph, Node
from samebits.kernels.record import Kernel
from samebits.kernels.wgsl.lib.launch import Chunk, Weight

if TYPE_CHECKING:
    from samebits.backends.webgpu.backend import WebGpuBackend

Packer = Callable[[Any], Any]


class Packs:
    """Packed inputs of a graph.

    version   another number whenever one of them lies elsewhere
    """

    def __init__(self, backend: WebGpuBackend, graph: Graph, nodes: Sequence[tuple[Node, Kernel]]) -> None:
        self._backend, self._constants = backend, graph.weights
        inputs = {v.name for v in graph.inputs}
        self._packers: dict[str, dict[Packer, None]] = {}
        for node, kernel in nodes:
            for name, packer in kernel.prepack.items():
                if name in node.inputs and node.inputs[name].name in inputs:
                    self._packers.setdefault(node.inputs[name].name, {})[packer] = None
        self._specs = {v.name: v.spec for v in graph.inputs}
        self._given: dict[str, Weight] = {}  # bound as they are
        self._made: dict[tuple[str, Packer], Weight] = {}
        self._due: set[str] = set()  # to be packed by the next run
        self.version = 0

    def bind(self, name: str, buffer: Buffer | View) -> None:
        """Takes note of what was bound."""
        base = base_of(buffer)
        self._given.pop(name, None)
        self._due.discard(name)
        if isinstance(base, WeightBuffer):
            self._given[name] = base.weight
        elif name in self._packers:
            self._due.add(name)

    def renew(self, bound: Mapping[str, Buffer | View]) -> None:
        """Packs what is due: a constant when it was bound anew, anything else for every run."""
        for name in sorted(self._due):
            host = self._backend.copy_out(bound[name])
            for packer in self._packers[name]:
                self._made[name, packer] = self._backend.adopt_packed(packer, host).weight
            self.version += 1
        self._due -= self._constants

    def weight(self, name: str, packer: Packer | None) -> Weight | None:
        """A value packed for a kernel, without memory where nothing is bound yet; None for one that is not packed."""
        found = self._given.get(name) or (self._made.get((name, packer)) if packer else None)
        if found is None and packer and name in self._packers:
            shape = self._specs[name].upper_shape
            return Weight(self._specs[name].format, shape, (Chunk(0, shape[0], None),))
        return found
