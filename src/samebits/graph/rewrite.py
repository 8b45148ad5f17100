"""The rewriting driver: finds rules' patterns and puts what they build in their place.

The new nodes stand where the anchor stood. A rewrite is refused, whatever the rule, where it would
  change the spec of a value, or read a value before it is there,
  read a value after its memory was overwritten, or overwrite one that is still read, by the same node even,
  write into an input of the graph that was not written before, or stop writing one that was,
  make an input of the graph an output: the caller's memory, in which floats need not be settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from samebits.graph.ir import Graph, GraphBuilder, Node, Value
from samebits.graph.patterns import GraphView, Match, Pattern
from samebits.graph.uses import is_read_twice, next_number, overwritten_at, state_values

Build = Callable[[GraphBuilder, Match], tuple[Value, ...] | None]
MAX_SWEEPS = 100
NEVER = 1 << 62  # beyond every node


@dataclass(frozen=True)
class Rule:
    """`build` adds the nodes to put in and returns a value for each of the match's outputs, or refuses: None.

    The match it sees holds the values as they are after earlier rewrites.
    """

    name: str
    pattern: Pattern
    build: Build


def apply_rules(
    graph: Graph,
    rules: Sequence[Rule],
    *,
    when: Callable[[Graph, Match], bool] | None = None,
    accept: Callable[[Node], bool] | None = None,
) -> Graph:
    """Rewrites until no rule applies; of several at one node the first in the list wins.

    when(graph, match) may decline a match, accept(node) a node that a rule wants to put in.
    """
    by_anchor: dict[str, list[Rule]] = {}
    for rule in rules:
        by_anchor.setdefault(rule.pattern.anchor.op, []).append(rule)
    for _ in range(MAX_SWEEPS):
        sweep = _Sweep(graph, by_anchor, when, accept)
        changed = sweep.run()
        if not sweep.num_rewrites:
            return graph
        graph = changed
    raise RuntimeError(f"rules undo each other: no end after {MAX_SWEEPS} sweeps of {', '.join(r.name for r in rules)}")


class _Sweep:
    """One walk over the nodes in order; matches are found in the old graph, the new one grows beside it."""

    def __init__(
        self,
        graph: Graph,
        rules: dict[str, list[Rule]],
        when: Callable[[Graph, Match], bool] | None,
        accept: Callable[[Node], bool] | None,
    ) -> None:
        self._graph, self._rules, self._when, self._accept = graph, rules, when, accept
        self._view = GraphView(graph)
        self._current: dict[str, Value] = {}
        self._inputs = list(graph.inputs)
        self._kinds, self._joined = dict(graph.kinds), dict(graph.joined)
        self._placed: dict[int, tuple[Node, ...]] = {}  # anchor -> what stands in its place
        self._gone: set[int] = set()
        self.num_rewrites = 0

    # What only a match needs to know: many sweeps find none.

    @cached_property
    def _uses(self) -> dict[str, tuple[int, ...]]:
        """Old node numbers, by current name."""
        return dict(self._graph.uses)

    @cached_property
    def _overwritten(self) -> dict[str, int]:
        return overwritten_at(self._graph)

    @cached_property
    def _state(self) -> set[str]:
        return state_values(self._graph)

    @cached_property
    def _number(self) -> int:
        return next_number(self._graph)

    def run(self) -> Graph:
        for i in range(len(self._graph.nodes)):
            if i not in self._gone:
                self._try_rules(i)
        if not self._placed:
            return self._graph
        nodes: list[Node] = []
        for i, node in enumerate(self._graph.nodes):
            if i in self._placed:
                nodes += self._placed[i]
            elif i not in self._gone:
                nodes.append(self._renamed(node))
        outputs = tuple(self._now(v) for v in self._graph.outputs)
        return Graph(tuple(self._inputs), tuple(nodes), outputs, self._kinds, self._joined)

    def _now(self, value: Value) -> Value:
        while value.name in self._current:
            value = self._current[value.name]
        return value

    def _renamed(self, node: Node) -> Node:
        return node.reading({v.name: self._now(v) for v in node.inputs.values() if v.name in self._current})

    def _try_rules(self, anchor: int) -> None:
        for rule in self._rules.get(self._graph.nodes[anchor].op.name, ()):
            match = self._view.match(rule.pattern, anchor)
            if match is None or self._gone & set(match.nodes) or (self._when and not self._when(self._graph, match)):
                continue
            builder = GraphBuilder(self._number)
            current = {name: self._now(v) for name, v in match.values.items()}
            values = rule.build(builder, replace(match, values=current))
            if values is not None and self._is_legal(match, builder, values):
                self._commit(match, builder, values)
                return

    def _is_legal(self, match: Match, builder: GraphBuilder, values: tuple[Value, ...]) -> bool:
        if tuple(v.spec for v in values) != tuple(v.spec for v in match.outputs):
            return False
        if self._accept is not None and not all(map(self._accept, builder.nodes)):
            return False
        inside = set(match.replaced)
        if any(use < match.anchor and use not in inside for v in match.outputs for use in self._uses.get(v.name, ())):
            return False
        new = {v.name for node in builder.nodes for v in node.outputs}
        read = [v.name for node in builder.nodes for v in node.inputs.values() if v.name not in new]
        if any(self._overwriter(name, inside) <= match.anchor for name in read):
            return False
        kept = [(old, v) for old, v in zip(match.outputs, values, strict=True) if v.name not in new]
        if any(old in self._graph.outputs and v in self._graph.inputs for old, v in kept):
            return False
        if any(self._overwriter(v.name, inside) != NEVER or old.name in self._overwritten for old, v in kept):
            return False  # two values become one: safe only while nobody writes over either
        return _writes_last(builder.nodes, values) and self._writes_are_legal(match, builder, new)

    def _overwriter(self, name: str, inside: set[int]) -> int:
        """Where a node outside the match writes over the value."""
        at = self._overwritten.get(name, NEVER)
        return NEVER if at in inside else at

    def _writes_are_legal(self, match: Match, builder: GraphBuilder, new: set[str]) -> bool:
        inside = set(match.replaced)
        before = {self._now(old).name for i in inside for old, _ in self._graph.nodes[i].writes}
        after = {old.name for node in builder.nodes for old, _ in node.writes}
        for name in after - new - before:
            is_read = any(use > match.anchor and use not in inside for use in self._uses.get(name, ()))
            if name in self._state or is_read:
                return False
        return all(name in after for name in before if name in self._state)

    def _commit(self, match: Match, builder: GraphBuilder, values: tuple[Value, ...]) -> None:
        self.num_rewrites += 1
        self._number = builder.next_number
        self._inputs += [v for v in builder.inputs if v.name not in {known.name for known in self._inputs}]
        self._kinds.update(builder.kinds)
        self._joined.update(builder.joined)
        self._gone |= set(match.replaced)
        self._placed[match.anchor] = tuple(builder.nodes)
        for i in match.replaced:
            for old, _ in self._graph.nodes[i].writes:
                self._overwritten.pop(self._now(old).name, None)
        for node in builder.nodes:
            for old, new_value in node.writes:
                self._overwritten[old.name] = match.anchor
                if old.name in self._state:
                    self._state.add(new_value.name)
        for old, new_value in zip(match.outputs, values, strict=True):
            self._uses[new_value.name] = (*self._uses.get(new_value.name, ()), *self._uses.get(old.name, ()))
            if old.name in self._overwritten:
                self._overwritten[new_value.name] = self._overwritten[old.name]
            self._current[old.name] = new_value


def _writes_last(nodes: Sequence[Node], results: Sequence[Value]) -> bool:
    """Return whether no node reads by a second name what it writes over, and nothing is used after it was written over:
    neither by a later node, nor as a result."""
    overwritten = set[str]()
    for node in nodes:
        if any(v.name in overwritten for v in node.inputs.values()) or any(
            is_read_twice(node, v) for v, _ in node.writes
        ):
            return False
        overwritten.update(old.name for old, _ in node.writes)
    return not any(v.name in overwritten for v in results)
