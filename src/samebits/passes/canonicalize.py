"""canonicalize: what says nothing goes away. Every rule keeps bits, so nothing here adds or multiplies anew."""

from __future__ import annotations

from typing import Any

from samebits.graph import Graph, Node, Value
from samebits.graph.patterns import same_attr
from samebits.graph.rewrite import apply_rules
from samebits.graph.uses import overwritten_at, state_values
from samebits.passes.rules import rule


def _width(x: Value) -> Any:
    return x.spec.shape[-1]


def _slice_of_concat(b: Any, a: Value, c: Value, *, start: int, stop: int) -> Value | None:
    left = _width(a)
    if stop <= left:
        return b.slice_columns(a, start=start, stop=stop)
    return b.slice_columns(c, start=start - left, stop=stop - left) if start >= left else None


RULES = [
    # x * 1 -> x
    rule("scale by 1", lambda p, x: p.scale(x, factor=1.0), lambda b, x: x),
    # cast(x) to the format it has -> x
    rule(
        "cast to itself",
        lambda p, x, *, format: p.cast(x, format=format),
        lambda b, x, format: x if x.spec.format == format else None,
    ),
    # cast(cast(x, f32), f) -> cast(x, f): float32 holds every 16-bit value
    rule(
        "cast through f32",
        lambda p, x, *, format: p.cast(p.cast(x, format="f32"), format=format),
        lambda b, x, format: b.cast(x, format=format),
    ),
    # merge_heads(split_heads(x)) -> x
    rule("merge of split", lambda p, x, *, heads: p.merge_heads(p.split_heads(x, heads=heads)), lambda b, x, heads: x),
    # split_heads(merge_heads(x)) into as many heads -> x
    rule(
        "split of merge",
        lambda p, x, *, heads: p.split_heads(p.merge_heads(x), heads=heads),
        lambda b, x, heads: x if x.spec.shape[1] == heads else None,
    ),
    # x[:, 0:width] -> x
    rule(
        "slice of all",
        lambda p, x, *, start, stop: p.slice_columns(x, start=start, stop=stop),
        lambda b, x, start, stop: x if (start, stop) == (0, _width(x)) else None,
    ),
    # x[:, a:b][:, c:d] -> x[:, a+c:a+d]
    rule(
        "slice of slice",
        lambda p, x, *, a, e, start, stop: p.slice_columns(p.slice_columns(x, start=a, stop=e), start=start, stop=stop),
        lambda b, x, a, e, start, stop: b.slice_columns(x, start=a + start, stop=a + stop),
    ),
    # (a | c)[:, inside one of them] -> a slice of that one
    rule(
        "slice of concat",
        lambda p, a, c, *, start, stop: p.slice_columns(p.concat_columns(a, c), start=start, stop=stop),
        _slice_of_concat,
    ),
    # x[:, a:m] | x[:, m:e] -> x[:, a:e]
    rule(
        "concat of slices",
        lambda p, x, *, a, m, n, e: p.concat_columns(
            p.slice_columns(x, start=a, stop=m), p.slice_columns(x, start=n, stop=e)
        ),
        lambda b, x, a, m, n, e: b.slice_columns(x, start=a, stop=e) if m == n else None,
    ),
]


def canonicalize(graph: Graph) -> Graph:
    """The rules above, equal nodes made one, and unused ones dropped, until nothing changes."""
    while True:
        changed = drop_unused(merge_equal(apply_rules(graph, RULES)))
        if len(changed.nodes) == len(graph.nodes):
            return changed
        graph = changed


def merge_equal(graph: Graph) -> Graph:
    """Common subexpressions: of nodes with equal op, inputs and attrs the first stays.

    Not where a node writes memory, or its result is written over: then each needs its own.
    """
    overwritten = overwritten_at(graph)
    known: dict[object, list[Node]] = {}
    current: dict[str, Value] = {}
    nodes = []
    for node in graph.nodes:
        node = node.reading(current)
        if node.op.writes or any(v.name in overwritten for v in node.outputs):
            nodes.append(node)
            continue
        alike = known.setdefault((node.op.name, *sorted([(n, v.name) for n, v in node.inputs.items()])), [])
        first = next((n for n in alike if _same_attrs(n, node)), None)
        if first is None:
            alike.append(node)
            nodes.append(node)
        else:
            current.update({v.name: same for v, same in zip(node.outputs, first.outputs, strict=True)})
    if not current:
        return graph
    outputs = tuple(current.get(v.name, v) for v in graph.outputs)
    return Graph(graph.inputs, tuple(nodes), outputs, graph.kinds, graph.joined)


def _same_attrs(a: Node, b: Node) -> bool:
    """Of two nodes of one op."""
    return all(same_attr(value, b.attrs[name]) for name, value in a.attrs.items())


def drop_unused(graph: Graph) -> Graph:
    """Without nodes whose results nobody reads, and weights likewise. A write to an input's memory is a use."""
    state = state_values(graph)
    needed = {v.name for v in graph.outputs}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v.name in needed for v in node.outputs) or any(old.name in state for old, _ in node.writes):
            needed.update(v.name for v in node.inputs.values())
            nodes.append(node)
    weights = graph.weights
    if len(nodes) == len(graph.nodes) and weights <= needed:
        return graph
    inputs = tuple(v for v in graph.inputs if v.name in needed or v.name not in weights)
    names = {v.name for v in inputs}
    kinds = {name: kind for name, kind in graph.kinds.items() if name in names}
    joined = {name: parts for name, parts in graph.joined.items() if name in names}
    return Graph(inputs, tuple(reversed(nodes)), graph.outputs, kinds, joined)
