"""A graph run one node at a time, every value brought back to the host. Simple and slow on purpose.

Each node is compiled as a graph of its own, at the sizes of this step. Kernels are chosen by formats, static sizes
and attrs, never by a batch size, so these are the kernels that the whole graph would get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from samebits.backends.discovery import Found
from samebits.backends.one_op import run_op
from samebits.core.errors import SamebitsError
from samebits.core.format import HostTensor
from samebits.core.tiers import Tier
from samebits.debug.labels import Label, label_values
from samebits.debug.prepare import device_of
from samebits.graph import Graph, Node
from samebits.ops import OPS, bind

Results = tuple[HostTensor, ...]


class StepFailed(SamebitsError):
    """A node that could not be run; the text names backend, tensor and reason in one line."""


class Stepper:
    """Runs single nodes on one backend at one tier. Arguments are copied in, so none is modified."""

    def __init__(self, found: Found, tier: Tier) -> None:
        self.name, self.tier, self._device = found.name, tier, device_of(found)

    def run(self, node: Node, arguments: Mapping[str, HostTensor]) -> Results:
        """The node's results as fresh host tensors."""
        return run_op(self._device, bind(OPS[node.op.name], **arguments, **node.attrs), self.tier)


@dataclass(frozen=True)
class Stepped:
    """A node that has been run: a label for each result, what the first backend read, and the results on every one."""

    node: Node
    arguments: Mapping[str, HostTensor]
    labels: tuple[Label, ...]
    results: tuple[Results, ...]


def walk(
    graph: Graph, load: Callable[[str], HostTensor], steppers: Sequence[Stepper], same_inputs: bool = False
) -> Iterator[Stepped]:
    """Runs the graph on every stepper in step, node after node.

    load(name) gives an input of the graph when it is first needed. With `same_inputs` every stepper's node gets the
    first one's values, else each goes on with its own. A value is dropped after its last use. StepFailed names the
    node that could not be run.
    """
    labels, last_use = label_values(graph), {name: uses[-1] for name, uses in graph.uses.items()}
    shared: dict[str, HostTensor] = {}
    values: list[dict[str, HostTensor]] = [{} for _ in steppers]
    graph_inputs = {v.name for v in graph.inputs}
    for index, node in enumerate(graph.nodes):
        for value in node.inputs.values():
            if value.name in graph_inputs and value.name not in shared:
                shared[value.name] = load(value.name)
        node_labels = tuple(labels[v.name] for v in node.outputs)
        results, read = [], []
        for stepper, own in zip(steppers, values, strict=True):
            source = shared | (values[0] if same_inputs else own)
            arguments = {name: source[value.name] for name, value in node.inputs.items()}
            read.append(arguments)
            results.append(_run(stepper, node, arguments, node_labels[0].text))
        for own, computed in zip(values, results, strict=True):
            own.update(zip((v.name for v in node.outputs), computed, strict=True))
        yield Stepped(node, read[0], node_labels, tuple(results))
        for held in (shared, *values):
            for name in [n for n in held if last_use.get(n, -1) <= index]:
                del held[name]


def _run(stepper: Stepper, node: Node, arguments: dict[str, HostTensor], label: str) -> Results:
    try:
        return stepper.run(node, arguments)
    except Exception as error:  # a kernel under construction may raise anything; say where
        kind = "" if isinstance(error, SamebitsError) else f"{type(error).__name__}: "
        text = " ".join(str(error).split())[:400]
        raise StepFailed(f"{stepper.name}: {label} ({node.op.name}): {kind}{text}") from error
