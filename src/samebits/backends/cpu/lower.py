"""From a graph to a native program: which results are views, where everything lies, where threads must meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.backends.cpu.barriers import needs_barrier
from samebits.backends.windows import find_windows
from samebits.core.shapes import Dim, Sym
from samebits.graph import Graph
from samebits.graph.uses import memory_roots
from samebits.kernels.cpp.weights import FORMAT_CODES
from samebits.kernels.record import Kernel
from samebits.passes.plan_memory import plan_memory


@dataclass(frozen=True)
class Lowered:
    """A native program and how to speak of its parts."""

    program: Any
    tensors: Mapping[str, int]  # value name -> tensor number
    symbols: tuple[str, ...]  # names of the sizes a step must give, in the program's order
    limits: tuple[int, ...]

    def memory(self, name: str, num_bytes: int) -> np.ndarray:
        """uint8 [num_bytes]: where a value of the program's own lies; valid while the program lives."""
        return np.asarray(self.program.memory(self.tensors[name], num_bytes))


class _Symbols:
    """Numbers for symbolic sizes in the order they are met."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}

    def encode(self, dim: Dim) -> tuple[int, int, int]:
        if not isinstance(dim, Sym):
            return (-1, 0, dim)
        self.limits.setdefault(dim.name, dim.limit)
        return (list(self.limits).index(dim.name), dim.factor, dim.plus)


def lower(graph: Graph, kernels: Sequence[Kernel], module: Any, isa: str) -> Lowered:
    """The program of a graph, memory planned and allocated; graph inputs are still to be bound."""
    windows = find_windows(graph)
    calls = [(n, k) for n, k in zip(graph.nodes, kernels, strict=True) if n.outputs[0].name not in windows]
    roots = memory_roots(graph)
    memory = {name: roots[windows[name].base if name in windows else name] for name in roots}
    barriers = needs_barrier([n for n, _ in calls], [k.op for _, k in calls], module.ops(isa), memory)
    together: list[tuple[int, ...]] = [()]
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    for (node, _), barrier in zip(calls, barriers, strict=True):
        together[-1] += (position[id(node)],)
        if barrier:
            together.append(())
    plan = plan_memory(graph, shares={name: w.base for name, w in windows.items()}, together=together)

    symbols = _Symbols()
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    encoded = [(value, [symbols.encode(d) for d in value.spec.shape]) for value in values]
    program = module.Program(isa, list(symbols.limits.values()))
    tensors: dict[str, int] = {}
    for value, dims in encoded:
        if roots[value.name] != value.name:
            tensors[value.name] = tensors[roots[value.name]]
            continue
        window = windows.get(value.name)
        number = program.add_tensor(FORMAT_CODES[value.spec.format], dims, window.row_stride if window else 0)
        tensors[value.name] = number
        if window is not None:
            program.lay_in_tensor(number, tensors[window.base], window.offset)
        elif value.name in plan.offsets:
            program.lay_in_arena(number, plan.offsets[value.name])
    for (node, kernel), barrier in zip(calls, barriers, strict=True):
        inputs = [tensors[node.inputs[t.name].name] if t.name in node.inputs else -1 for t in kernel.op.inputs]
        kernel.run(program, inputs, [tensors[v.name] for v in node.outputs], node.attrs, barrier)
    program.allocate(plan.total_bytes)
    return Lowered(program, tensors, tuple(symbols.limits), tuple(symbols.limits.values()))
