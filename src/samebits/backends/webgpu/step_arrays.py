"""Which arrays of a step lie together, and which of them are as long as others say."""

from __future__ import annotations

from math import prod

from samebits.core.shapes import Sym, TensorSpec
from samebits.core.step import PAGES
from samebits.graph import Graph
from samebits.graph.uses import overwritten_at

FORMATS = ("i32", "u32", "f32")
MAX_WIDTH = 4  # elements of a row


def is_open(name: str) -> bool:
    """Whether an array's end is known from others: page ids, whose number changes all the time."""
    return name == PAGES or name.startswith(f"{PAGES}.")


def open_symbols(graph: Graph) -> set[str]:
    """Symbols of no other sizes than the lengths of open arrays, whose ends kernels know from other arrays."""
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    uses = [(v.name, d.name) for v in values for d in v.spec.shape if isinstance(d, Sym)]
    return {symbol for _, symbol in uses} - {symbol for name, symbol in uses if not is_open(name)}


def small_arrays(graph: Graph) -> dict[str, TensorSpec]:
    """The arrays that lie in tables, those with an open end last: only what is used of them travels."""
    fixed = {v.name for v in graph.outputs} | overwritten_at(graph).keys()
    steps = {v.name: v.spec for v in graph.inputs if graph.kinds.get(v.name, "step") == "step"}
    small = {
        name: spec
        for name, spec in steps.items()
        if name not in fixed and spec.format in FORMATS and spec.shape and prod(spec.upper_shape[1:]) <= MAX_WIDTH
    }
    return dict(sorted(small.items(), key=lambda item: is_open(item[0])))
