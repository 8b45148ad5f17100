"""What a step of one token reads of a model's weights: experts that it does not choose are left alone."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.core.format import spec_bytes
from samebits.core.shapes import upper
from samebits.graph import Graph, Node
from samebits.models.parts import ROPE_TABLE


@dataclass(frozen=True)
class Reading:
    """Bytes of weights, rotary tables not among them.

    weight_bytes   of all
    active_bytes   that a token reads: of tables it takes a row of only that, of experts those that it chooses
    num_mixtures   parts of experts in a step
    num_experts    of the largest of them
    top_k          the experts that a token chooses there
    """

    weight_bytes: int
    active_bytes: int
    num_mixtures: int = 0
    num_experts: int = 0
    top_k: int = 0


def reading(graph: Graph) -> Reading:
    """Of a graph before its passes or after them."""
    routes = [node for node in graph.nodes if node.op.name == "route"]
    layouts = {node.outputs[0].name: node for node in graph.nodes if node.op.name == "expert_layout"}
    shares: dict[str, tuple[int, int]] = {}  # the largest part that any node reads, as (read, of all)
    for node in graph.nodes:
        for name, value in node.inputs.items():
            if value.name in graph.weights and not value.name.startswith(ROPE_TABLE):
                share = _share(node, name, layouts)
                shares[value.name] = max(shares.get(value.name, share), share, key=lambda part: part[0] / part[1])
    specs = {v.name: v.spec for v in graph.inputs}
    sizes = {name: spec_bytes(specs[name]) for name in shares}
    active = sum(sizes[name] * read // whole for name, (read, whole) in shares.items())
    chosen = max(((upper(n.inputs["logits"].spec.shape[1]), n.attrs["top_k"]) for n in routes), default=(0, 0))
    return Reading(sum(sizes.values()), active, len(routes), *chosen)


def _share(node: Node, name: str, layouts: dict[str, Node]) -> tuple[int, int]:
    """How much of a weight a token reads: (rows, of so many), or (1, 1)."""
    if node.op.name == "embedding" and name == "table":
        return 1, upper(node.inputs[name].spec.shape[0])
    if "pairs" in node.inputs and name in ("weight", "bias"):
        chosen = layouts[node.inputs["pairs"].name].inputs["expert_ids"].spec.shape[1]
        return upper(chosen), upper(node.inputs[name].spec.shape[0])
    return 1, 1
