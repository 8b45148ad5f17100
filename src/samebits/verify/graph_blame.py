"""Which node of a graph is to blame: one that is wrong alone, or the first that goes wrong among the others."""

from __future__ import annotations

from itertools import islice

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend
from samebits.core.tiers import Tier
from samebits.debug.distance import tensor_diff
from samebits.debug.labels import label_values
from samebits.debug.stepper import Stepper
from samebits.graph import Graph
from samebits.verify.graph_run import GraphRun, Manner, Values, evaluated
from samebits.verify.locate import same_bits
from samebits.verify.model import one_line
from samebits.verify.scenes import Tensors
from samebits.verify.tolerance import is_far


def blame(backend: Backend, graph: Graph, tensors: Tensors, tier: Tier, manner: Manner, last_step: int) -> str:
    """A clause on the first node that is wrong in the steps up to `last_step`; empty where none can be named."""
    steps = list(islice(evaluated(graph, tensors), last_step + 1))
    try:
        return _alone(backend, graph, tier, steps[-1]) or _among(backend, graph, tensors, tier, manner, steps)
    except Exception as error:  # the wrong result is reported, whether or not its cause is found
        return f"; no node could be blamed: {one_line(error)}"


def _alone(backend: Backend, graph: Graph, tier: Tier, values: Values) -> str:
    """Every node by itself, on the definition's arguments."""
    stepper = Stepper(Found(backend.name, "verify", backend, backend.probe()), tier)
    labels = label_values(graph)
    for node in graph.nodes:
        got = stepper.run(node, {name: values[v.name] for name, v in node.inputs.items()})
        for i, value in enumerate(node.outputs):
            diff = tensor_diff(labels[value.name], node, i, got[i], values[value.name])
            if not (diff.is_same if tier >= Tier.PORTABLE else diff.is_close):
                return f"; {diff.label} ({diff.op}) is wrong alone too: {diff.where}"
    return ""


def _among(backend: Backend, graph: Graph, tensors: Tensors, tier: Tier, manner: Manner, steps: list[Values]) -> str:
    """The shortest beginning of the graph whose last node goes wrong in some step."""
    labels = label_values(graph)
    for count, node in enumerate(graph.nodes, 1):
        beginning = Graph(graph.inputs, graph.nodes[:count], node.outputs, graph.kinds, graph.joined)
        run = GraphRun(backend, beginning, tensors, tier, manner)
        for number, values in enumerate(steps):
            got, _ = run.step(tensors.steps[number], tensors.dims[number])
            for i, value in enumerate(node.outputs):
                want = values[value.name]
                is_wrong = not same_bits(got[i], want) if tier >= Tier.PORTABLE else is_far(got[i], want)
                if is_wrong:
                    label = labels[value.name].text
                    return f"; from {label} ({node.op.name}) on, in step {number + 1}, which is right alone"
    return ""
