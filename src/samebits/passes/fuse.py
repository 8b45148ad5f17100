"""fuse: where the graph holds the decomposition of an op that the backend has, the op takes its place."""

from __future__ import annotations

from functools import cache
from typing import Any

from samebits.graph import Graph
from samebits.graph.patterns import Match
from samebits.graph.rewrite import Rule, apply_rules
from samebits.ops import OPS, Op
from samebits.passes.rules import Supports, fusion_rules, rule_of


@cache
def derived_rules() -> tuple[Rule, ...]:
    """One or more for each op with a decomposition, longest patterns first. Nothing is written twice:
    add(residual, x), rms_norm -> fused_add_rms_norm;  gemm, add -> gemm with bias;  rope, append -> rope_and_append.
    The one whose parts only meet in attention has its pattern below.
    """
    rules = [*(rule for op in OPS for rule in fusion_rules(op)), _before_attention()]
    return tuple(sorted(rules, key=lambda rule: -len(rule.pattern.nodes)))


def _before_attention() -> Rule:
    """rope(query), rope_and_append(key, value) -> rope_both_and_append, found by the attention that reads both."""
    both, attention = OPS["rope_both_and_append"], OPS["paged_attention"]
    shared = ("kv_last_page_len", "kv_indptr", "kv_indices", "layout")
    choices = [a.name for a in attention.attrs if a.name not in {r.when for r in attention.results}]

    def attend(b: Any, prepared: tuple[Any, Any, Any], qo_indptr: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
        q, k_cache, v_cache = prepared
        stated = {name: given[name] for name in {*shared, *choices}}
        return b.paged_attention(q, k_cache, qo_indptr, v_cache=v_cache, **stated), k_cache, v_cache

    def apart(b: Any, qo_indptr: Any, **given: Any) -> Any:
        return attend(b, both.decompose(b, **_of(both, given)), qo_indptr, given)  # type: ignore[misc]

    def fused(b: Any, qo_indptr: Any, **given: Any) -> Any:
        return attend(b, getattr(b, both.name)(**_of(both, given)), qo_indptr, given)

    inputs = [*(t.name for t in both.inputs), "qo_indptr"]
    attrs = dict.fromkeys([*(a.name for a in both.attrs), *choices])
    return rule_of(f"fuse {both.name}", apart, fused, inputs, attrs)


def _of(op: Op, given: dict[str, Any]) -> dict[str, Any]:
    """What of the arguments is the op's."""
    names = {*(t.name for t in op.inputs), *(a.name for a in op.attrs)}
    return {name: value for name, value in given.items() if name in names}


def _rounds_as_often(graph: Graph, match: Match) -> bool:
    """A value that vanishes is no longer rounded to its format, which float32 never was."""
    return all(v.spec.format == "f32" for v in match.interior)


def fuse(graph: Graph, supports: Supports) -> Graph:
    """Fused ops where they are supported and keep every bit: with 16-bit activations, only where none vanishes."""
    return apply_rules(graph, derived_rules(), when=_rounds_as_often, accept=lambda node: supports(node) is None)
