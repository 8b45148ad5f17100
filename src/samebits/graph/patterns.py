"""Patterns as data: small graphs with names for values and variables for attributes, found in a graph's DAG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from samebits.graph.ir import Graph, Node, Value


@dataclass(frozen=True)
class AttrVar:
    """Stands for any value of an attribute, the same wherever the variable stands."""

    name: str

    def __bool__(self) -> NoReturn:
        raise TypeError(f"attribute {self.name} is a variable: a pattern cannot depend on its value")


@dataclass(frozen=True)
class PatternNode:
    """A node to be found: exactly these inputs (by the pattern's names of values) and attrs."""

    op: str
    inputs: Mapping[str, str]
    attrs: Mapping[str, Any]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """Nodes in order, the last one the anchor: all others must be among what it depends on.

    All are replaced, and no value of theirs but the outputs may be read elsewhere; or, with `anchor_only`, just
    the anchor is, and the others stay for whoever else reads them.
    """

    inputs: tuple[str, ...]
    nodes: tuple[PatternNode, ...]
    outputs: tuple[str, ...]
    anchor_only: bool = False

    def __post_init__(self) -> None:
        needed = set(self.nodes[-1].inputs.values()) if self.nodes else set()
        for node in reversed(self.nodes[:-1]):
            if not needed & set(node.outputs):
                raise ValueError(f"{node.op} is not among what the anchor {self.nodes[-1].op} depends on")
            needed |= set(node.inputs.values())
        replaced = self.nodes[-1:] if self.anchor_only else self.nodes
        if not set(self.outputs) <= {o for n in replaced for o in n.outputs} or not replaced:
            raise ValueError("a pattern has nodes, and its outputs are of those it replaces")

    @property
    def anchor(self) -> PatternNode:
        return self.nodes[-1]

    @cached_property
    def before_anchor(self) -> tuple[tuple[str, str], ...]:
        """(name of an input, op that makes it) for what the anchor reads of the other nodes: most matches end there."""
        makers = {output: node.op for node in self.nodes for output in node.outputs}
        return tuple((name, makers[value]) for name, value in self.anchor.inputs.items() if value in makers)


@dataclass(frozen=True)
class Match:
    """Where a pattern was found. `interior` are values that vanish with it: nobody outside reads them."""

    nodes: tuple[int, ...]  # numbers in the graph, the anchor's last
    replaced: tuple[int, ...]
    values: Mapping[str, Value]  # by the pattern's names
    attrs: Mapping[str, Any]  # by variable
    outputs: tuple[Value, ...]
    interior: tuple[Value, ...]

    @property
    def anchor(self) -> int:
        return self.nodes[-1]


def same_attr(a: Any, b: Any) -> bool:
    """Equal in type and text, so that 0.0 is not -0.0 and 1 is not True: bits may depend on it."""
    return type(a) is type(b) and repr(a) == repr(b)


class GraphView:
    """A graph with its definitions and uses looked up once, for many matches."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = {v.name: i for i, node in enumerate(graph.nodes) for v in node.outputs}

    def match(self, pattern: Pattern, anchor: int) -> Match | None:
        """The pattern with its last node at node `anchor`, or nothing."""
        inputs, nodes = self.graph.nodes[anchor].inputs, self.graph.nodes
        for name, op in pattern.before_anchor:
            made_by = self.producers.get(inputs[name].name) if name in inputs else None
            if made_by is None or nodes[made_by].op.name != op:
                return None
        values: dict[str, Value] = {}
        attrs: dict[str, Any] = {}
        numbers: list[int] = []
        number = anchor
        for wanted in reversed(pattern.nodes):
            if wanted is not pattern.anchor:
                known = next(values[o] for o in wanted.outputs if o in values)
                number = self.producers.get(known.name, -1)
            if number < 0 or number in numbers or not _bind(wanted, nodes[number], values, attrs):
                return None
            numbers.insert(0, number)
        outputs = tuple(values[name] for name in pattern.outputs)
        replaced = tuple(numbers[-1:] if pattern.anchor_only else numbers)
        interior = tuple(v for i in replaced for v in nodes[i].outputs if v not in outputs)
        if any(set(self.graph.uses.get(v.name, ())) - set(replaced) for v in interior):
            return None
        return Match(tuple(numbers), replaced, values, attrs, outputs, interior)


def _bind(wanted: PatternNode, node: Node, values: dict[str, Value], attrs: dict[str, Any]) -> bool:
    """Whether the node is the wanted one given what is bound already; binds its values and variables."""
    if node.op.name != wanted.op or set(node.inputs) != set(wanted.inputs) or len(node.outputs) != len(wanted.outputs):
        return False
    for name, given in node.attrs.items():
        stated = wanted.attrs[name]
        stated = attrs.setdefault(stated.name, given) if isinstance(stated, AttrVar) else stated
        if not same_attr(stated, given):
            return False
    pairs = [(pattern_name, node.inputs[name]) for name, pattern_name in wanted.inputs.items()]
    pairs += zip(wanted.outputs, node.outputs, strict=True)
    return all(values.setdefault(pattern_name, value) == value for pattern_name, value in pairs)
