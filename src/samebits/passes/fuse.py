"""fuse: where the graph holds the decomposition of an op that the backend has, the op takes its place."""

from __future__ import annotations

from functools import cache

from samebits.graph import Graph
from samebits.graph.patterns import Match
from samebits.graph.rewrite import Rule, apply_rules
from samebits.ops import OPS
from samebits.passes.rules import Supports, fusion_rules


@cache
def derived_rules() -> tuple[Rule, ...]:
    """One or more for each op with a decomposition, longest patterns first. Nothing is written twice:
    add(residual, x), rms_norm -> fused_add_rms_norm;  gemm, add -> gemm with bias;  rope, append -> rope_and_append.
    """
    rules = [rule for op in OPS for rule in fusion_rules(op)]
    return tuple(sorted(rules, key=lambda rule: -len(rule.pattern.nodes)))


def _rounds_as_often(graph: Graph, match: Match) -> bool:
    """A value that vanishes is no longer rounded to its format, which float32 never was."""
    return all(v.spec.format == "f32" for v in match.interior)


def fuse(graph: Graph, supports: Supports) -> Graph:
    """Fused ops where they are supported and keep every bit: with 16-bit activations, only where none vanishes."""
    return apply_rules(graph, derived_rules(), when=_rounds_as_often, accept=lambda node: supports(node) is None)
