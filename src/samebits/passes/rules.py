"""Rules from functions: a pattern is traced from the code that would build it, so it reads like a model.

rule("scale by 1", lambda p, x: p.scale(x, factor=1.0), lambda b, x: x)

Parameters by position stand for values, keyword-only ones for attributes, whatever they are. The second function
gets an OpBuilder and what the first one's parameters were bound to; it returns the values to put in, or None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations, product
from typing import Any

from samebits.core.errors import BadInput
from samebits.graph import GraphBuilder, Node, Value
from samebits.graph.patterns import AttrVar, Match, Pattern, PatternNode
from samebits.graph.rewrite import Rule
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import name_arguments
from samebits.ops.record import OPS, Op

Supports = Callable[[Node], str | None]  # None, or the reason why a backend has no kernel for the node


class Tracer:
    """Stands in for an OpBuilder: ops as methods that write down pattern nodes. Values are their names."""

    def __init__(self) -> None:
        self.nodes: list[PatternNode] = []

    def __getattr__(self, name: str) -> Any:
        if name not in OPS:
            raise AttributeError(name)
        op = OPS[name]

        def add(*args: Any, **kwargs: Any) -> Any:
            given = name_arguments(op, args, kwargs)
            inputs = {t.name: given[t.name] for t in op.inputs if given.get(t.name) is not None}
            attrs = {a.name: given.get(a.name, a.default) for a in op.attrs}
            results = op.active_results(inputs, attrs)
            outputs = tuple(f"{op.name}{len(self.nodes)}.{r.name}" for r in results)
            self.nodes.append(PatternNode(op.name, inputs, attrs, outputs))
            return outputs[0] if len(outputs) == 1 else outputs

        return add


def trace(function: Callable[..., Any], inputs: Iterable[str], attrs: Iterable[str], anchor_only: bool) -> Pattern:
    """The pattern that `function(builder, **inputs, **attrs)` builds."""
    tracer, names = Tracer(), tuple(inputs)
    results = function(tracer, **{n: n for n in names}, **{a: AttrVar(a) for a in attrs})
    return Pattern(names, tuple(tracer.nodes), _as_tuple(results), anchor_only)


def rule(name: str, pattern: Callable[..., Any], build: Callable[..., Any], *, anchor_only: bool = True) -> Rule:
    """See the module text. By default only the last node is replaced; the others die if nobody reads them."""
    parameters = list(inspect.signature(pattern).parameters.values())[1:]
    inputs = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    attrs = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return Rule(name, trace(pattern, inputs, attrs, anchor_only), _builds(build, inputs))


def rule_of(
    name: str, pattern: Callable[..., Any], build: Callable[..., Any], inputs: Iterable[str], attrs: Iterable[str]
) -> Rule:
    """A rule that replaces all nodes of its pattern; both functions take these inputs and attrs by name."""
    names = tuple(inputs)
    return Rule(name, trace(pattern, names, attrs, anchor_only=False), _builds(build, names))


def fusion_rules(op: Op) -> list[Rule]:
    """From an op's decomposition to the op, one rule for each set of optional inputs that may be present and each word
    that decides what the op is made of.

    None for parts that stand side by side: a pattern needs a last node that depends on all others.
    """
    rules = []
    for inputs, words, parts in _decompositions(op):
        if not _is_itself(op, parts) and not _is_apart(parts):
            pattern = trace(partial(_decomposed(op), **words), inputs, _free(op, words), anchor_only=False)
            rules.append(Rule(f"fuse {op.name}", pattern, _builds(partial(_call(op), **words), inputs)))
    return rules


def decomposition_rules(op: Op) -> list[Rule]:
    """From an op to its decomposition, likewise."""
    rules = []
    for inputs, words, parts in _decompositions(op):
        if not _is_itself(op, parts):
            pattern = trace(partial(_call(op), **words), inputs, _free(op, words), anchor_only=False)
            rules.append(Rule(f"decompose {op.name}", pattern, _builds(partial(_decomposed(op), **words), inputs)))
    return rules


def _call(op: Op) -> Callable[..., Any]:
    return lambda b, **arguments: getattr(b, op.name)(**arguments)


def _input_sets(op: Op) -> list[tuple[str, ...]]:
    """Names of inputs that may be present together, all optional ones first."""
    optional = [t.name for t in op.inputs if t.optional]
    chosen = [set(c) for n in range(len(optional), -1, -1) for c in combinations(optional, n)]
    return [tuple(t.name for t in op.inputs if not t.optional or t.name in c) for c in chosen]


def _decomposed(op: Op) -> Callable[..., Any]:
    if op.decompose is None:
        raise TypeError(f"{op.name} has no decomposition")
    return op.decompose


def _free(op: Op, words: dict[str, str]) -> list[str]:
    """Attrs that a pattern leaves open."""
    return [a.name for a in op.attrs if a.name not in words]


def _decompositions(op: Op) -> Iterator[tuple[tuple[str, ...], dict[str, str], list[PatternNode]]]:
    """(inputs, words, nodes) for each set of inputs and each choice of words that decides what the op is made of."""
    if op.decompose is None:
        return
    worded = [a for a in op.attrs if a.words]
    for inputs in _input_sets(op):
        for chosen in product(*(a.words for a in worded)):
            words = {a.name: word for a, word in zip(worded, chosen, strict=True)}
            tracer = Tracer()
            op.decompose(tracer, **{n: n for n in inputs}, **words, **{a: AttrVar(a) for a in _free(op, words)})
            yield inputs, words, tracer.nodes


def _is_itself(op: Op, parts: list[PatternNode]) -> bool:
    """Whether the decomposition of a call is the call: nothing left to take apart."""
    return [n.op for n in parts] == [op.name]


def _is_apart(parts: list[PatternNode]) -> bool:
    """Whether two parts of a decomposition do not read each other's results."""
    read = {name for node in parts for name in node.inputs.values()}
    return any(not read & set(node.outputs) for node in parts[:-1])


def _builds(function: Callable[..., Any], inputs: Iterable[str]) -> Callable[..., tuple[Value, ...] | None]:
    names = tuple(inputs)

    def build(builder: GraphBuilder, match: Match) -> tuple[Value, ...] | None:
        try:
            results = function(OpBuilder(builder), **{n: match.values[n] for n in names}, **match.attrs)
        except BadInput:  # the op does not take these shapes or formats
            return None
        return None if results is None else _as_tuple(results)

    return build


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)
