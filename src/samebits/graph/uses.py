"""Who reads, who overwrites, and which memory outlives the graph: what passes ask before they change anything."""

from __future__ import annotations

from samebits.graph.ir import Graph, Node, Value


def overwritten_at(graph: Graph) -> dict[str, int]:
    """Value name -> number of the node that writes another value into its memory."""
    return {old.name: i for i, node in enumerate(graph.nodes) for old, _ in node.writes}


def is_read_twice(node: Node, value: Value) -> bool:
    """Return whether two inputs of the node are this value: then the node may not write over it."""
    return sum(v.name == value.name for v in node.inputs.values()) > 1


def memory_roots(graph: Graph) -> dict[str, str]:
    """Every value's name -> the first value in its memory: itself, or what was there before all that is written in
    place over it. A value in a graph input's memory leads to that input."""
    roots = {v.name: v.name for v in graph.inputs}
    for node in graph.nodes:
        roots.update({v.name: v.name for v in node.outputs})
        roots.update({new.name: roots[old.name] for old, new in node.writes})
    return roots


def state_values(graph: Graph) -> set[str]:
    """Values in the memory of a graph input: the inputs, and what nodes write into them. A write to one is seen
    by the caller, so it may be neither dropped nor moved to other memory."""
    state = {v.name for v in graph.inputs}
    for node in graph.nodes:
        state.update([new.name for old, new in node.writes if old.name in state])
    return state


def cache_values(graph: Graph) -> set[str]:
    """Values in memory that outlives a step: inputs that are caches or are written, and what is written there."""
    written = overwritten_at(graph)
    caches = {v.name for v in graph.inputs if graph.kinds.get(v.name) == "cache" or v.name in written}
    return {name for name, root in memory_roots(graph).items() if root in caches}


def next_number(graph: Graph) -> int:
    """A number that no value's name ends in, nor any above it."""
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    endings = [v.name.rpartition(".")[2] for v in values]
    return 1 + max((int(e) for e in endings if e.isdecimal()), default=-1)
