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
TAKEN_FORMATS = OPS[TAKE].inputs[0].formats
LAYOUT, LAYOUT_RESULTS = "expert_layout", ("pairs", "seg_indptr")  # which rows each expert has, of all tokens


def take_rows(graph: Graph, supports: Supports) -> Graph:
    """Rows are taken as early as that saves a product, where the backend can take them there."""
    given = {v.name for v in graph.inputs}
    for name in [n.outputs[0].name for n in graph.nodes if n.op.name == TAKE]:
        take = next(n for n in graph.nodes if n.outputs[0].name == name)  # an earlier taking may have changed its table
        if take.inputs["table"].name in given or take.inputs["ids"].name not in given:
            continue
        constants = _constants(graph)
        late = _read_for_taken_rows(graph, take, constants)
        if any(OPS[graph.nodes[i].op.name].weights for i in late):
            graph = _taken_early(graph, take, late, constants, supports)
    return graph


def _constants(graph: Graph) -> set[str]:
    """Return the names of the values that depend on weights alone: they have no row for each token."""
    found = set(graph.weights)
    for node in graph.nodes:
        if not node.op.writes and all(v.name in found for v in node.inputs.values()):
            found.update(v.name for v in node.outputs)
    return found


def _has_row_per_token(node: Node, name: str) -> bool:
    """Return whether the op reads row t of the input for row t of its results."""
    op = OPS[node.op.name]
    axes = next(t for t in op.inputs if t.name == name).axes(node.inputs[name].spec.shape)
    return bool(axes) and axes[0] in op.invariant_axes


def _can_be_taken(value: Value, rows: Dim) -> bool:
    """Return whether the value is a matrix of `rows` rows in a format whose rows can be taken."""
    shape = value.spec.shape
    return len(shape) == 2 and shape[0] == rows and value.spec.format in TAKEN_FORMATS


def _read_for_taken_rows(graph: Graph, take: Node, constants: set[str]) -> set[int]:
    """Numbers of the nodes of which a row, or what belongs to it, is needed only where its token is taken."""
    number, rows = graph.nodes.index(take), take.inputs["table"].spec.shape[0]
    maker = {v.name: i for i, node in enumerate(graph.nodes) for v in node.outputs}
    late = set[int]()

    def is_read_late(node: Node) -> bool:
        uses = [use for v in node.outputs for use in graph.uses.get(v.name, ())]
        return bool(uses) and all(use in late or use == number for use in uses)

    def has_layout_of_taken(node: Node) -> bool:
        """Return whether experts find their rows by one layout, which will be made for the taken rows."""
        made_by = {maker.get(node.inputs[name].name) for name in LAYOUT_RESULTS if name in node.inputs}
        return len(made_by) == 1 and made_by <= late and all(name in node.inputs for name in LAYOUT_RESULTS)

    def is_taken(node: Node, name: str) -> bool:
        value = node.inputs[name]
        made_by = maker.get(value.name)
        if value.name in constants:
            return not _has_row_per_token(node, name)
        if made_by is not None and graph.nodes[made_by].op.name == LAYOUT:
            return name in LAYOUT_RESULTS and has_layout_of_taken(node)
        return _has_row_per_token(node, name) and (made_by in late or _can_be_taken(value, rows))

    for i in reversed(range(number)):
        node = graph.nodes[i]
        is_constant = node.outputs[0].name in constants
        if not is_constant and not node.op.writes and not OPS[node.op.name].caches and is_read_late(node):
            late.add(i)
    while others := {
        i for i in late if not is_read_late(node := graph.nodes[i]) or not all(is_taken(node, n) for n in node.inputs)
    }:
        late -= others
    return late


def _taken_early(graph: Graph, take: Node, late: set[int], constants: set[str], supports: Supports) -> Graph:
    """The graph with the nodes `late` behind the taking; as it is where the backend cannot take what they read."""
    ids, builder = take.inputs["ids"], GraphBuilder(next_number(graph))
    b = OpBuilder(builder)
    taken: dict[str, Value] = {}

    def taken_of(value: Value) -> Value:
        if value.name not in taken:
            taken[value.name] = b.embedding(value, ids, format=value.spec.format)
        return taken[value.name]

    nodes: list[Node] = []
    current: dict[str, Value] = {}
    for i, node in enumerate(graph.nodes):
        if i in late:
            inputs = {n: v if v.name in constants else taken_of(v) for n, v in node.inputs.items()}
            made = getattr(b, node.op.name)(**inputs, **node.attrs)
            results = made if isinstance(made, tuple) else (made,)
            taken.update({old.name: new for old, new in zip(node.outputs, results, strict=True)})
        elif node is take:
            result, given = taken[take.inputs["table"].name], take.outputs[0]
            in_format = result.spec.format == given.spec.format
            current[given.name] = result if in_format else b.cast(result, format=given.spec.format)
        else:
            nodes.append(node.reading(current))
        nodes += builder.nodes
        builder.nodes.clear()
    known = {id(node) for node in graph.nodes}
    added = [node for node in nodes if node.op.name in (TAKE, "cast") and id(node) not in known]
    if any(supports(node) is not None for node in added):
        return graph
    outputs = tuple(current.get(v.name, v) for v in graph.outputs)
    return Graph(graph.inputs, tuple(nodes), outputs, graph.kinds, graph.joined)
