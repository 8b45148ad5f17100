"""decompose: a node without a kernel becomes the nodes it is made of, until there are kernels or nothing is left."""

from __future__ import annotations

from functools import cache

from samebits.graph import Graph
from samebits.graph.patterns import Match
from samebits.graph.rewrite import Rule, apply_rules
from samebits.ops import OPS
from samebits.passes.rules import Supports, decomposition_rules


@cache
def derived_rules() -> tuple[Rule, ...]:
    return tuple(rule for op in OPS for rule in decomposition_rules(op))


def decompose(graph: Graph, supports: Supports) -> Graph:
    """Every unsupported node that has a decomposition, taken apart. Bits are kept on float32 activations; 16-bit ones
    are rounded once more between the parts. What has none, or writes an input that its parts do not, stays."""

    def unsupported(graph: Graph, match: Match) -> bool:
        return supports(graph.nodes[match.anchor]) is not None

    return apply_rules(graph, derived_rules(), when=unsupported)
