"""`samebits shader`: the final text of what a WGSL kernel runs."""

from __future__ import annotations

from samebits.backends import discovery
from samebits.backends.one_op import one_node
from samebits.backends.support import supports
from samebits.cli import flags
from samebits.core.errors import BadInput
from samebits.core.shapes import Sym
from samebits.core.tiers import Tier
from samebits.debug.labels import label_values
from samebits.debug.prepare import open_model, step_graph
from samebits.graph import Graph
from samebits.ops import OPS, bind, make_inputs
from samebits.passes import run_pipeline
from samebits.verify.select import find_case


def _op_graph(op: str, case: str | None) -> Graph:
    """One node: the case of that name, or the op's first one."""
    record = OPS[op]
    bound = bind(record, **make_inputs(record, find_case(record, case) if case else record.cases[0]))
    return one_node(record, bound.specs, bound.attrs)


def _model_nodes(graph: Graph, op: str | None, node: str) -> set[int]:
    """Numbers of the nodes that were asked for; BadInput where there is none."""
    labels = label_values(graph)
    found = {
        number
        for number, n in enumerate(graph.nodes)
        if op in (None, n.op.name) and any(node in labels[v.name].text for v in n.outputs)
    }
    if not found:
        given = f"{op or 'any op'}, {node!r}"
        raise BadInput(
            "shader", "op and --node", given, f"one of this model's, such as {labels[graph.outputs[0].name].text}"
        )
    return found


def _sizes_at(graph: Graph, num_tokens: int) -> dict[str, int]:
    """Every symbol of a graph at so many, or at its bound."""
    symbols = {d.name: d.limit for v in graph.inputs for d in v.spec.shape if isinstance(d, Sym)}
    return {name: min(num_tokens, limit) for name, limit in symbols.items()}


def shader(
    op: str = flags.Argument(None, help="The op, such as rms_norm."),
    case: str = flags.Option(
        None, "--case", help="A case of the op, as `samebits verify` names it; the first if absent."
    ),
    model: str = flags.Option(None, "--model", help="Show what this model's step runs instead of a case."),
    node: str = flags.Option(
        "", "--node", help="With --model: show only nodes whose result has this text in its name."
    ),
    tokens: int = flags.Option(1, "--tokens", help="With --model: the number of tokens in the step.", min=1, max=4096),
) -> None:
    """Print the final shaders of a webgpu kernel, each once, with comments that say what it is run with.

    `samebits trace` and `samebits explain` show the names that --node takes. No GPU is needed, and nothing is run.
    """
    backend = discovery.made("webgpu")
    if model is None:
        if op is None:
            raise BadInput("shader", "op", "none", "an op, or --model")
        if node or tokens != 1:
            raise BadInput("shader", "--node and --tokens", "given without --model", "given with it")
        graph, numbers = _op_graph(op, case), {0}
    else:
        if case is not None:
            raise BadInput("shader", "--case and --model", "both", "one of them")
        checkpoint = open_model(model)
        whole = step_graph(checkpoint, min(max(tokens, 16), checkpoint.config.context_len))
        graph = run_pipeline(whole, supports(backend, Tier.PORTABLE))
        numbers = _model_nodes(graph, op, node)
    shown: set[str] = set()
    for text, found in backend.sources(graph, numbers, _sizes_at(graph, tokens), Tier.PORTABLE):
        if text not in shown:
            flags.echo(found)
        shown.add(text)
