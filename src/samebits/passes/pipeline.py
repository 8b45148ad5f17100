"""The passes in order. Placement and the memory plan follow: they describe the last graph, they do not change it."""

from __future__ import annotations

from collections.abc import Callable

from samebits.graph import Graph
from samebits.passes.canonicalize import canonicalize
from samebits.passes.decompose import decompose
from samebits.passes.fuse import fuse
from samebits.passes.join import join
from samebits.passes.rules import Supports
from samebits.passes.share_quantization import share_quantization
from samebits.passes.take_rows import take_rows

Pass = Callable[[Graph, Supports], Graph]
Trace = Callable[[str, Graph], None]


def _canonicalize(graph: Graph, supports: Supports) -> Graph:
    """Its rules only take away, or read more directly, so support is not asked."""
    return canonicalize(graph)


PASSES: tuple[tuple[str, Pass], ...] = (
    ("canonicalize", _canonicalize),
    ("take_rows", take_rows),
    ("fuse", fuse),
    ("join", join),  # after fuse: biases are inside their products by then
    ("canonicalize joined", _canonicalize),  # slices of the joined product
    ("share_quantization", share_quantization),
    ("fuse quantized", fuse),  # what has int8 blocks inside
    ("decompose", decompose),
    ("canonicalize decomposed", _canonicalize),
)


def run_pipeline(graph: Graph, supports: Supports, trace: Trace | None = None) -> Graph:
    """The graph after all passes: the same bits from the same inputs, `Graph.joined` weights made by the loader.

    supports(node) is None, or the reason why the backend has no kernel for the node.
    trace(name, graph) is called with the graph as given ("input") and after every pass.
    """
    if trace is not None:
        trace("input", graph)
    for name, run in PASSES:
        graph = run(graph, supports)
        if trace is not None:
            trace(name, graph)
    return graph
