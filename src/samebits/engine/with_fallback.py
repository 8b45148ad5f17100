"""A graph on two backends: the device, and a fallback for the stateless ops it has no kernel for."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from samebits.backends.interface import Backend, Buffer, Executable, View
from samebits.core.tiers import Tier
from samebits.graph import Graph, Node, Value
from samebits.ops.evaluate import spec_of
from samebits.passes.place import Placement


class Segment:
    """Consecutive nodes on one backend, compiled together."""

    def __init__(self, backend: Backend, graph: Graph, nodes: list[Node], needed_later: set[str], tier: Tier) -> None:
        self.backend = backend
        made = {v.name: v for node in nodes for v in node.outputs}
        read = {v.name: v for node in nodes for v in node.inputs.values() if v.name not in made}
        self.inputs: tuple[Value, ...] = tuple(read.values())
        self.outputs = tuple(v for name, v in made.items() if name in needed_later)
        kinds = {name: kind for name, kind in graph.kinds.items() if name in read}  # weights may be packed
        self.executable = backend.compile(Graph(self.inputs, tuple(nodes), self.outputs, kinds), tier)


class FallbackExecutable(Executable):
    """Runs the segments in order; values that cross go through the host."""

    def __init__(self, device: Backend, fallback: Backend, graph: Graph, placement: Placement, tier: Tier) -> None:
        self._device, self._graph = device, graph
        self._bound: dict[str, Buffer | View] = {}
        self._copies: dict[str, Buffer] = {}  # constants on the fallback, copied once
        self._made: dict[str, tuple[Backend, Buffer]] = {}
        runs = [
            (place, [graph.nodes[i] for i, _ in group])
            for place, group in groupby(enumerate(placement.places), key=lambda pair: pair[1])
        ]
        self._segments = []
        for number, (place, nodes) in enumerate(runs):
            later = {v.name for _, others in runs[number + 1 :] for node in others for v in node.inputs.values()}
            later |= {v.name for v in graph.outputs}
            self._segments.append(Segment(device if place == "device" else fallback, graph, nodes, later, tier))

    def compile_ahead(self, is_needed_first: bool = True) -> None:
        for segment in self._segments:
            segment.executable.compile_ahead(is_needed_first)

    def bind(self, name: str, buffer: Buffer | View) -> None:
        self._bound[name] = buffer
        self._copies.pop(name, None)

    def prepare(self, dims: Mapping[str, int]) -> None:
        for segment in self._segments:
            segment.executable.prepare(dims)

    def run(self) -> None:
        self._made.clear()
        for segment in self._segments:
            for value in segment.inputs:
                segment.executable.bind(value.name, self._on(segment.backend, value.name))
            segment.executable.run()
            for i, value in enumerate(segment.outputs):
                self._made[value.name] = (segment.backend, segment.executable.output(i))

    def output(self, index: int) -> Buffer:
        buffer = self._on(self._device, self._graph.outputs[index].name)
        return buffer.base if isinstance(buffer, View) else buffer

    def _on(self, backend: Backend, name: str) -> Buffer | View:
        """The value's memory on a backend, copied there if it is elsewhere."""
        owner, buffer = self._made[name] if name in self._made else (self._device, self._bound[name])
        if owner is backend:
            return buffer
        if name in self._copies:
            return self._copies[name]
        host = owner.copy_out(buffer)
        copied = backend.alloc(spec_of(host))
        backend.copy_in(copied, host)
        if self._graph.kinds.get(name) == "weight":
            self._copies[name] = copied
        return copied
