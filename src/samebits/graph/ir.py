"""Values, nodes and graphs. All immutable: a pass builds a new graph.

A node that updates a cache takes the old cache value and returns a new one; making it in place is the
memory planner's business, guided by the op's `writes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from samebits.core.protocols import OpSpec
from samebits.core.shapes import Env, TensorSpec


@dataclass(frozen=True)
class Value:
    """One tensor of a graph, defined once."""

    name: str
    spec: TensorSpec

    def __str__(self) -> str:
        return f"%{self.name}: {self.spec}"


@dataclass(frozen=True)
class Node:
    """An op applied to values. `inputs` leaves absent optional inputs out."""

    op: OpSpec
    inputs: Mapping[str, Value]
    attrs: Mapping[str, Any]
    outputs: tuple[Value, ...]

    def __str__(self) -> str:
        results = ", ".join(f"%{v.name}" for v in self.outputs)
        args = [f"{name}=%{value.name}" for name, value in self.inputs.items()]
        args += [f"{name}={value!r}" for name, value in self.attrs.items()]
        types = ", ".join(str(v.spec) for v in self.outputs)
        return f"{results} = {self.op.name}({', '.join(args)}) -> {types}"


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which every value is defined before it is used."""

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    def __str__(self) -> str:
        lines = [f"graph({', '.join(str(v) for v in self.inputs)})"]
        lines += [f"  {node}" for node in self.nodes]
        lines.append(f"  return {', '.join(f'%{v.name}' for v in self.outputs)}")
        return "\n".join(lines)


class GraphBuilder:
    """Collects nodes in order. Names are made unique by a running number."""

    def __init__(self) -> None:
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._count = 0

    def input(self, name: str, spec: TensorSpec) -> Value:
        value = Value(name, spec)
        self._inputs.append(value)
        return value

    def add(self, op: OpSpec, inputs: dict[str, Value], attrs: dict[str, Any], env: Env) -> tuple[Value, ...]:
        """Appends a node whose arguments are already checked; returns its values."""
        specs = op.infer({name: v.spec for name, v in inputs.items()}, attrs, env)
        outputs = []
        for spec in specs:
            outputs.append(Value(f"{op.name}.{self._count}", spec))
            self._count += 1
        node = Node(op, MappingProxyType(dict(inputs)), MappingProxyType(dict(attrs)), tuple(outputs))
        self._nodes.append(node)
        return node.outputs

    def finish(self, outputs: tuple[Value, ...]) -> Graph:
        return Graph(tuple(self._inputs), tuple(self._nodes), outputs)
