"""take_rows: behind the last op in which sequences' tokens meet, only the rows that are asked for are computed.

embedding(f(x), ids) -> f(embedding(x, ids)) for all f that work token by token and that nothing else reads. A prompt
asks for the logits of its last token: of the last layer's output projection and feed-forward part, experts or not, one
row is left to do.
"""

from __future__ import annotations

from samebits.core.shapes import Dim
from samebits.graph import Graph, GraphBuilder, Node, Value
from samebits.graph.uses import next_number
from samebits.ops.build import OpBuilder
from samebits.ops.record import OPS
from samebits.passes.rules import Supports

TAKE = "embedding"


def take_rows(graph: Graph, supports: Supports) -> Graph:
    """Rows are taken as early as that saves a product, where the backend can take them there."""
    given = {v.name for v in graph.inputs}
    for take in [n for n in graph.nodes if n.op.name == TAKE]:
        if take.inputs["table"].name in given or take.inputs["ids"].name not in given:
            continue
        late = _read_for_taken_rows(graph, take)
        if any(OPS[graph.nodes[i].op.name].weights for i in late):
            graph = _taken_early(graph, take, late, supports)
    return graph


def _is_taken(node: Node, name: str, rows: Dim) -> bool:
    """Whether an input is a matrix of so many rows, each for a token of its own."""
    op, shape = OPS[node.op.name], node.inputs[name].spec.shape
    choices = next(t.dims_choices for t in op.inputs if t.name == name)
    by_token = any(dims.startswith(f"{axis} ") for dims in choices for axis in op.invariant_axes)
    return by_token and len(shape) == 2 and shape[0] == rows


def _read_for_taken_rows(graph: Graph, take: Node) -> set[int]:
    """Numbers of the nodes of which a row, or what belongs to it, is needed only where its token is taken."""
    number, rows = graph.nodes.index(take), take.inputs["table"].spec.shape[0]
    maker = {v.name: i for i, node in enumerate(graph.nodes) for v in node.outputs}
    late = set[int]()

    def is_read_late(node: Node) -> bool:
        return all(use in late or use == number for v in node.outputs for use in graph.uses.get(v.name, ()))

    def reads_taken(node: Node) -> bool:
        given = [name for name, v in node.inputs.items() if v.name not in graph.weights]
        return all(maker.get(node.inputs[n].name) in late or _is_taken(node, n, rows) for n in given)

    for i in reversed(range(number)):
        op = OPS[graph.nodes[i].op.name]
        if not op.writes and not op.caches and is_read_late(graph.nodes[i]):
            late.add(i)
    while others := {i for i in late if not is_read_late(graph.nodes[i]) or not reads_taken(graph.nodes[i])}:
        late -= others
    return late


def _taken_early(graph: Graph, take: Node, late: set[int], supports: Supports) -> Graph:
    """The graph with the nodes `late` behind the taking; as it is where the backend cannot take what they read."""
    ids, builder = take.inputs["ids"], GraphBuilder(next_number(graph))
    b = OpBuilder(builder)
    taken: dict[str, Value] = {}

    def taken_of(value: Value) -> Value:
        if value.name not in taken:
            taken[value.name] = b.embedding(value, ids, format=value.spec.format)
        return taken[value.name]

    nodes: list[Node] = []
    for i, node in enumerate(graph.nodes):
        if i in late:
            inputs = {n: v if v.name in graph.weights else taken_of(v) for n, v in node.inputs.items()}
            made = getattr(b, node.op.name)(**inputs, **node.attrs)
            results = made if isinstance(made, tuple) else (made,)
            taken.update({old.name: new for old, new in zip(node.outputs, results, strict=True)})
            nodes += builder.nodes
            builder.nodes.clear()
        elif node is not take:
            nodes.append(node)
    if any(node.op.name == TAKE and supports(node) is not None for node in nodes):
        return graph
    current = {take.outputs[0].name: taken[take.inputs["table"].name]}
    outputs = tuple(current.get(v.name, v) for v in graph.outputs)
    return Graph(graph.inputs, tuple(n.reading(current) for n in nodes), outputs, graph.kinds, graph.joined)
