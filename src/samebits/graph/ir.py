"""Values, nodes and graphs. All immutable: a pass builds a new graph.

A node that updates a cache takes the old cache value and returns a new one; making it in place is the
memory planner's business, guided by what the op's results alias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from samebits.core.protocols import OpSpec
from samebits.core.shapes import Env, TensorSpec

InputKind = Literal["step", "weight", "cache"]


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

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Of its inputs, by the op's names for them."""
        return {name: value.spec for name, value in self.inputs.items()}

    @cached_property
    def writes(self) -> tuple[tuple[Value, Value], ...]:
        """(old value, new value in the same memory) for every input that is updated in place."""
        if not self.op.writes:
            return ()
        results = self.op.active_results(self.inputs, dict(self.attrs))
        pairs = zip(results, self.outputs, strict=True)
        return tuple((self.inputs[r.alias_of], value) for r, value in pairs if r.alias_of is not None)

    def reading(self, current: Mapping[str, Value]) -> Node:
        """The node with values that have another in `current`, by name, replaced by that; itself where none has."""
        if not any(v.name in current for v in self.inputs.values()):
            return self
        return Node(self.op, {n: current.get(v.name, v) for n, v in self.inputs.items()}, self.attrs, self.outputs)

    def __str__(self) -> str:
        return node_text(self, {})


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which every value is defined before it is used.

    kinds   what an input is: "step" (new in every step; those not listed), "weight" (a constant) or "cache"
            (memory that outlives a step and may be written)
    joined  weights made of others: their rows one after another, in this order; of stacked weights those of each
            matrix, along the axis on which a part's shape differs (`joined_axis`)
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    kinds: Mapping[str, InputKind] = field(default_factory=dict)
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def weights(self) -> frozenset[str]:
        """Names of the inputs that are constants."""
        return frozenset(v.name for v in self.inputs if self.kinds.get(v.name) == "weight")

    @cached_property
    def uses(self) -> Mapping[str, tuple[int, ...]]:
        """Value name -> numbers of the nodes that read it, rising; an output is read at len(nodes)."""
        found: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in {v.name for v in node.inputs.values()}:
                found.setdefault(name, []).append(i)
        for name in dict.fromkeys(v.name for v in self.outputs):
            found.setdefault(name, []).append(len(self.nodes))
        return {name: tuple(numbers) for name, numbers in found.items()}

    def __str__(self) -> str:
        from samebits.graph.printer import print_graph  # the printer needs the classes above

        return print_graph(self)


def node_text(node: Node, names: Mapping[str, str]) -> str:
    """One line: results, op, arguments, types; values under their name in `names`, else their own."""

    def show(value: Value) -> str:
        return f"%{names.get(value.name, value.name)}"

    args = [f"{name}={show(value)}" for name, value in node.inputs.items()]
    args += [f"{name}={value!r}" for name, value in node.attrs.items()]
    types = ", ".join(str(v.spec) for v in node.outputs)
    return f"{', '.join(map(show, node.outputs))} = {node.op.name}({', '.join(args)}) -> {types}"


class GraphBuilder:
    """Collects nodes in order. Names are made unique by a running number, the first of which may be given."""

    def __init__(self, first_number: int = 0) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.kinds: dict[str, InputKind] = {}
        self.joined: dict[str, tuple[str, ...]] = {}
        self.next_number = first_number

    def input(self, name: str, spec: TensorSpec, kind: InputKind = "step") -> Value:
        value = Value(name, spec)
        self.inputs.append(value)
        if kind != "step":
            self.kinds[name] = kind
        return value

    def add(self, op: OpSpec, inputs: dict[str, Value], attrs: dict[str, Any], env: Env) -> tuple[Value, ...]:
        """Appends a node whose arguments are already checked; returns its values."""
        specs = op.infer({name: v.spec for name, v in inputs.items()}, attrs, env)
        outputs = []
        for spec in specs:
            outputs.append(Value(f"{op.name}.{self.next_number}", spec))
            self.next_number += 1
        node = Node(op, MappingProxyType(dict(inputs)), MappingProxyType(dict(attrs)), tuple(outputs))
        self.nodes.append(node)
        return node.outputs

    def finish(self, outputs: tuple[Value, ...]) -> Graph:
        return Graph(tuple(self.inputs), tuple(self.nodes), outputs, dict(self.kinds), dict(self.joined))
