"""join: products of one x become one product with a joined weight. Rows of a weight do not see each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from samebits.core.shapes import TensorSpec
from samebits.graph import Graph, GraphBuilder, Node, Value
from samebits.graph.rewrite import apply_rules
from samebits.graph.uses import next_number
from samebits.ops.build import OpBuilder
from samebits.passes.canonicalize import drop_unused
from samebits.passes.rules import Supports, rule

GATED_ACTIVATIONS = ("silu_and_mul", "gelu_and_mul", "clamped_swiglu")
NOT_JOINABLE = ("nvfp4",)  # one scale for the whole tensor: two tensors have two


@dataclass(frozen=True)
class _Join:
    """Products to be made one: their numbers in the graph, and the values that replace theirs."""

    numbers: tuple[int, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]


def join(graph: Graph, supports: Supports) -> Graph:
    """gemm(x, A), gemm(x, B), ... -> gemm(x, A joined B ...), slices. A, B constants of one format that nothing else
    reads; biases joined where all have one, products without apart. The new weights are in `Graph.joined`."""
    graph = _join_concatenated(graph, supports)
    builder = GraphBuilder(next_number(graph))
    joins = [made for group in _groups(graph) if (made := _join_group(graph, builder, group, supports)) is not None]
    first = {made.numbers[0]: made.nodes for made in joins}
    gone = {i for made in joins for i in made.numbers}
    current = {
        graph.nodes[i].outputs[0].name: value
        for made in joins
        for i, value in zip(made.numbers, made.outputs, strict=True)
    }
    nodes: list[Node] = []
    for i, node in enumerate(graph.nodes):
        nodes += [n.reading(current) for n in first.get(i, () if i in gone else (node,))]
    return drop_unused(
        Graph(
            (*graph.inputs, *builder.inputs),
            tuple(nodes),
            tuple(current.get(v.name, v) for v in graph.outputs),
            {**graph.kinds, **builder.kinds},
            {**graph.joined, **builder.joined},
        )
    )


def _join_concatenated(graph: Graph, supports: Supports) -> Graph:
    """concat(gemm(x, A), gemm(x, B)) -> gemm(x, A joined B): needs no slices. Stacked weights matrix by matrix."""

    def both(b: Any, axis: int, weights: tuple[Value, Value], biases: tuple[Value, Value] | None) -> Any:
        """(weight, bias), or None where either cannot be joined."""
        weight = _joined(graph, b.builder, weights, axis)
        bias = None if biases is None else _joined(graph, b.builder, biases, axis)
        return None if weight is None or (biases is not None and bias is None) else (weight, bias)

    def build(b: Any, x: Value, a: Value, c: Value, **named: Value) -> Any:
        found = both(b, 0, (a, c), _pair(named))
        return None if found is None else b.gemm(x, *found)

    def build_experts(b: Any, x: Value, a: Value, c: Value, pairs: Value, seg_indptr: Value, **named: Value) -> Any:
        found = both(b, 1, (a, c), _pair(named))
        return None if found is None else b.expert_gemm(x, found[0], pairs, seg_indptr, found[1])

    rules = [
        rule(
            "concat of gemms",
            lambda p, x, a, c: p.concat_columns(p.gemm(x, a), p.gemm(x, c)),
            build,
            anchor_only=False,
        ),
        rule(
            "concat of gemms with bias",
            lambda p, x, a, c, a_bias, c_bias: p.concat_columns(p.gemm(x, a, a_bias), p.gemm(x, c, c_bias)),
            build,
            anchor_only=False,
        ),
        rule(
            "concat of expert_gemms",
            lambda p, x, a, c, pairs, seg_indptr: p.concat_columns(
                p.expert_gemm(x, a, pairs, seg_indptr), p.expert_gemm(x, c, pairs, seg_indptr)
            ),
            build_experts,
            anchor_only=False,
        ),
        rule(
            "concat of expert_gemms with bias",
            lambda p, x, a, c, pairs, seg_indptr, a_bias, c_bias: p.concat_columns(
                p.expert_gemm(x, a, pairs, seg_indptr, a_bias), p.expert_gemm(x, c, pairs, seg_indptr, c_bias)
            ),
            build_experts,
            anchor_only=False,
        ),
    ]
    return apply_rules(graph, rules, accept=lambda node: supports(node) is None)


def _pair(named: dict[str, Value]) -> tuple[Value, Value] | None:
    return (named["a_bias"], named["c_bias"]) if named else None


def _groups(graph: Graph) -> list[list[int]]:
    """Numbers of the products that share x, weight format and bias format, two or more.

    Without those that a gated activation reads: slices would keep the two from being fused.
    """
    groups: dict[object, list[int]] = {}
    gated = {node.inputs["x"].name for node in graph.nodes if node.op.name in GATED_ACTIVATIONS}
    for i, node in enumerate(graph.nodes):
        if node.op.name == "gemm" and node.outputs[0].name not in gated:
            bias = node.inputs.get("bias")
            key = (node.inputs["x"].name, node.inputs["weight"].spec.format, bias and bias.spec.format)
            groups.setdefault(key, []).append(i)
    return [numbers for numbers in groups.values() if len(numbers) > 1]


def _join_group(graph: Graph, builder: GraphBuilder, numbers: list[int], supports: Supports) -> _Join | None:
    """The joined product and its slices, or nothing where a weight cannot be joined or a node is not supported."""
    products = [graph.nodes[i] for i in numbers]
    trial = GraphBuilder(builder.next_number)
    b = OpBuilder(trial)
    weight = _joined(graph, trial, tuple(n.inputs["weight"] for n in products))
    biases = tuple(n.inputs["bias"] for n in products if "bias" in n.inputs)
    bias = _joined(graph, trial, biases) if biases else None
    if weight is None or (biases and bias is None):
        return None
    y = b.gemm(products[0].inputs["x"], weight, bias)
    stops = list(accumulate(n.outputs[0].spec.shape[-1] for n in products))
    starts = [0, *stops[:-1]]
    outputs = tuple(b.slice_columns(y, start=i, stop=j) for i, j in zip(starts, stops, strict=True))
    if any(supports(node) is not None for node in trial.nodes):
        return None
    builder.next_number = trial.next_number
    builder.inputs += trial.inputs
    builder.kinds.update(trial.kinds)
    builder.joined.update(trial.joined)
    return _Join(tuple(numbers), tuple(trial.nodes), outputs)


def _joined(graph: Graph, builder: GraphBuilder, parts: tuple[Value, ...], axis: int = 0) -> Value | None:
    """Return a new weight of the parts' rows, which an axis counts. None unless all are constants of one format, each
    read once, and the name of the new one is free."""
    uses, formats = graph.uses, {v.spec.format for v in parts}
    names = [v.name for v in parts]
    if not set(names) <= graph.weights or len(formats) > 1 or formats & set(NOT_JOINABLE):
        return None
    if len(set(names)) < len(names) or any(len(uses[name]) > 1 for name in names):
        return None  # a part that stays would be held in memory twice
    sources = tuple(source for name in names for source in graph.joined.get(name, (name,)))
    if any(v.name == "+".join(sources) for v in graph.inputs):
        return None
    shape = list(parts[0].spec.shape)
    shape[axis] = sum(v.spec.shape[axis] for v in parts)  # type: ignore[misc]  # sizes of weights are known
    spec = TensorSpec(tuple(shape), parts[0].spec.format)
    value = builder.input("+".join(sources), spec, "weight")
    builder.joined[value.name] = sources
    return value
