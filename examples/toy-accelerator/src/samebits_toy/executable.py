"""A compiled graph: kernels chosen once, memory shared by values that never meet, one kernel after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samebits.backends.bound_sizes import BoundSizes
from samebits.backends.interface import Backend, Buffer, Executable, View
from samebits.backends.support import choose_kernels
from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.graph.uses import memory_roots
from samebits_toy.device import pack
from samebits_toy.memory import Window, window_of


class ToyExecutable(Executable):
    """Sizes may be symbols: `prepare` gives them values, and results buffers of exactly that size."""

    def __init__(self, backend: Backend, graph: Graph, tier: Tier) -> None:
        self._backend, self._graph = backend, graph
        self._kernels = choose_kernels(backend, graph, tier)
        self._roots = memory_roots(graph)
        self._written = {self._roots[v.name] for node in graph.nodes for v in node.outputs}
        self._rooms = share_rooms(graph, self._roots)
        self._buffers: dict[int, Buffer] = {}  # by number of the room
        self._bound: dict[str, Buffer | View] = {}
        self._bound_sizes = BoundSizes("toy", graph)
        if not any(isinstance(d, Sym) for spec in self._rooms.specs for d in spec.shape):
            self.prepare({})

    def bind(self, name: str, buffer: Buffer | View) -> None:
        root = self._roots[name]
        if root in self._written and window_of(buffer) is None:
            raise BadInput("toy", name, "a view that is more than whole rows", "memory that can be written in place")
        self._bound[root] = buffer
        self._bound_sizes.bind(name, buffer.spec)

    def prepare(self, dims: Mapping[str, int]) -> None:
        """Allocates here, so that `run` need not; most steps are as large as the one before and change nothing."""
        self._bound_sizes.prepare(dims)
        for number, spec in enumerate(self._rooms.specs):
            sizes = tuple(d.value(dims) if isinstance(d, Sym) else d for d in spec.shape)
            held = self._buffers.get(number)
            if held is None or held.spec.shape != sizes:
                self._buffers[number] = self._backend.alloc(TensorSpec(sizes, spec.format))

    def _memory(self, name: str) -> Buffer | View:
        """What was bound, else the room of the value."""
        root = self._roots[name]
        memory = self._bound.get(root) or self._buffers.get(self._rooms.numbers.get(root, -1))
        if memory is None:
            raise BadInput("toy", name, "no buffer", "bind() its input, and prepare() open sizes, before run()")
        return memory

    def _window(self, name: str) -> Window:
        """Rows in place where the view allows it, else a copy made now: the view's base may have changed."""
        memory = self._memory(name)
        window = window_of(memory)
        if window is None and isinstance(memory, View):
            window = window_of(self._backend.materialize(memory))
        if window is None:
            raise BadInput("toy", name, "memory of another kind", "a buffer or a view of this backend")
        return window

    def run(self) -> None:
        self._bound_sizes.check()
        for node, kernel in zip(self._graph.nodes, self._kernels, strict=True):
            arguments = {name: self._window(value.name) for name, value in node.inputs.items()}
            results = kernel.run(**arguments, **node.attrs)
            for value, result in zip(node.outputs, results, strict=True):
                if self._roots[value.name] == value.name:
                    pack(self._window(value.name), result)

    def output(self, index: int) -> Buffer:
        memory = self._memory(self._graph.outputs[index].name)
        return memory.base if isinstance(memory, View) else memory


@dataclass(frozen=True)
class Rooms:
    """Which room a value gets, by name, and what each room must hold; its sizes may be symbols."""

    numbers: Mapping[str, int]
    specs: tuple[TensorSpec, ...]


def share_rooms(graph: Graph, roots: Mapping[str, str]) -> Rooms:
    """A room for every value that is made; it is free again for values of the same spec after its last reader."""
    last = {roots[v.name]: i for i, node in enumerate(graph.nodes) for v in (*node.inputs.values(), *node.outputs)}
    last |= {roots[v.name]: len(graph.nodes) for v in graph.outputs}
    numbers: dict[str, int] = {}
    specs: list[TensorSpec] = []
    free: dict[TensorSpec, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.outputs:
            if roots[value.name] != value.name:
                continue
            waiting = free.get(value.spec)
            if not waiting:
                specs.append(value.spec)
            numbers[value.name] = waiting.pop() if waiting else len(specs) - 1
        for value in {roots[v.name]: v for v in (*node.inputs.values(), *node.outputs)}.values():
            name = roots[value.name]  # a result is given before a reader's room is taken back: they never share
            if name in numbers and last[name] == i:
                free.setdefault(specs[numbers[name]], []).append(numbers[name])
    return Rooms(numbers, tuple(specs))
