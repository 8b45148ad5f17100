"""A graph of several nodes on a backend, step after step over the same executable, weights and caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from samebits.backends.interface import Backend, Buffer, Executable, View
from samebits.backends.one_op import Finished
from samebits.core.errors import Unsupported
from samebits.core.format import HostTensor, copy_tensor
from samebits.core.shapes import TensorSpec, upper
from samebits.core.tiers import Tier
from samebits.engine.weights import Packer
from samebits.graph import Graph, Node, Value
from samebits.graph.uses import memory_roots, state_values
from samebits.ops import OPS, bind, evaluate
from samebits.verify.harness import PATTERNS
from samebits.verify.model import Finding, one_line
from samebits.verify.program import Memory
from samebits.verify.refusals import has_open_sizes, held_to_claims, never_refused
from samebits.verify.scenes import Arrays, Tensors

Results = list[HostTensor]
Values = dict[str, HostTensor]
NUM_PLACES = 2


@dataclass(frozen=True)
class Manner:
    """How a graph is given its memory.

    is_watched  step inputs and outputs are rows of larger buffers, in another place each step, whose edges are watched;
                else every step brings buffers of its own, and outputs lie where the backend likes
    is_fed      a step's arrays are handed over at once where the backend takes them
    packers     how weights are rearranged at load, by name
    """

    text: str
    is_watched: bool = False
    is_fed: bool = False
    packers: Mapping[str, Packer] = field(default_factory=dict)


def evaluated(graph: Graph, tensors: Tensors) -> Iterator[Values]:
    """All values of every step, node by node by the definition; caches are carried on."""
    values = {v.name: tensors.constant(graph, v) for v in graph.inputs if v.name in graph.kinds}
    for arrays in tensors.steps:
        step: Values = {**values, **arrays}
        for node in graph.nodes:
            arguments = {name: step[v.name] for name, v in node.inputs.items()}
            arguments |= {name: copy_tensor(arguments[name]) for name in node.op.writes if name in arguments}
            results = evaluate(bind(OPS[node.op.name], **arguments, **node.attrs))
            step.update(zip((v.name for v in node.outputs), results, strict=True))
        yield step
        last = {root: name for name, root in memory_roots(graph).items()}
        for name in [v.name for v in graph.inputs if graph.kinds.get(v.name) == "cache"]:
            values[name] = step[last[name]]


def fixed_graph(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """The graph at the sizes of one step, for a backend that does not compile open sizes."""

    def fixed(value: Value) -> Value:
        return Value(value.name, value.spec.at(dims))

    nodes = tuple(
        Node(n.op, {k: fixed(v) for k, v in n.inputs.items()}, n.attrs, tuple(map(fixed, n.outputs)))
        for n in graph.nodes
    )
    return Graph(tuple(map(fixed, graph.inputs)), nodes, tuple(map(fixed, graph.outputs)), graph.kinds, graph.joined)


class GraphRun:
    """An executable with its weights and caches. A backend that does not compile open sizes gets one for each size."""

    def __init__(
        self,
        backend: Backend,
        graph: Graph,
        tensors: Tensors,
        tier: Tier,
        manner: Manner,
        caches: Mapping[str, HostTensor] | None = None,
    ) -> None:
        """caches: what they hold at first, by name; else poison."""
        self._backend, self._graph, self._tensors, self._tier, self._manner = backend, graph, tensors, tier, manner
        self._fixed: dict[tuple[tuple[str, int], ...], Executable] = {}
        self._open: Executable | None = None
        self.refusal = ""  # why sizes could not be left open
        try:
            with held_to_claims(backend, lambda: graph, tier):
                self._open = backend.compile(graph, tier)
        except Unsupported as error:
            if not has_open_sizes(graph):
                raise
            self.refusal = one_line(error)
        self._constants = {v.name: self._upload(v, caches or {}) for v in graph.inputs if v.name in graph.kinds}
        if self._open is not None:
            self._bind_constants(self._open)
        state = state_values(graph)
        self._outputs = {v.name: v for v in graph.outputs if v.name not in state} if manner.is_watched else {}
        self._memories: dict[str, Memory] = {}
        self._num_steps = 0

    def _upload(self, value: Value, caches: Mapping[str, HostTensor]) -> Buffer:
        host = caches.get(value.name, self._tensors.constant(self._graph, value))
        if value.name in self._manner.packers:
            return self._backend.adopt_packed(self._manner.packers[value.name], copy_tensor(host))
        has_layout = self._graph.kinds[value.name] == "cache" and self._open is not None
        layout = self._open.layout(value.name) if has_layout and self._open is not None else "row-major"
        buffer = self._backend.alloc(value.spec, layout)
        self._backend.copy_in(buffer, host)
        return buffer

    def _bind_constants(self, executable: Executable) -> None:
        for name, buffer in self._constants.items():
            executable.bind(name, buffer)

    def _at(self, dims: dict[str, int]) -> Executable:
        """The executable for these sizes."""
        if self._open is not None:
            return self._open
        key = tuple(sorted(dims.items()))
        if key not in self._fixed:
            fixed = fixed_graph(self._graph, dims)
            with held_to_claims(self._backend, lambda: fixed, self._tier):
                self._fixed[key] = self._backend.compile(fixed, self._tier)
            self._bind_constants(self._fixed[key])
        return self._fixed[key]

    def caches(self) -> dict[str, HostTensor]:
        """What the caches hold now, by name."""
        names = [name for name in self._constants if self._graph.kinds[name] == "cache"]
        return {name: self._backend.copy_out(self._constants[name]) for name in names}

    def step(self, arrays: Arrays, dims: dict[str, int]) -> tuple[Results, list[Finding]]:
        """Return copies of the graph's outputs after one step, and what the memory around outputs and inputs showed.

        Raise Unsupported if a node has no kernel, and BrokenClaim for any other refusal.
        """
        executable = self._at(dims)
        with never_refused():
            return self._step(executable, arrays, dims)

    def _step(self, executable: Executable, arrays: Arrays, dims: dict[str, int]) -> tuple[Results, list[Finding]]:
        if not (self._manner.is_fed and executable.feed(arrays)):
            self._bind(executable, arrays, dims)
            executable.prepare(dims)
        with Finished(self._backend):
            executable.run()
        self._num_steps += 1
        findings = []
        if self._manner.is_watched:
            for name in arrays:
                findings += self._memories[name].inspect(may_change=False)[1]
        results = []
        for i, value in enumerate(self._graph.outputs):
            if value.name in self._outputs:
                result, strays = self._memories[value.name].inspect(may_change=True)
                findings += strays
            else:
                result = self._backend.copy_out(executable.output(i))
            results.append(result)
        return results, findings

    def _bind(self, executable: Executable, arrays: Arrays, dims: dict[str, int]) -> None:
        if not self._manner.is_watched:
            for name, array in arrays.items():
                executable.bind(name, self._backend.adopt(array.copy()))
            return
        for name, array in arrays.items():
            executable.bind(name, self._place(name, array, self._spec(name).at(dims)))
        for value in self._outputs.values():
            executable.bind(value.name, self._place(value.name, None, value.spec.at(dims)))

    def _spec(self, name: str) -> TensorSpec:
        return next(v.spec for v in self._graph.inputs if v.name == name)

    def _place(self, name: str, array: np.ndarray | None, spec: TensorSpec) -> Buffer | View:
        """Rows of a larger buffer, another place in every step."""
        if name not in self._memories:
            values = (*self._graph.inputs, *self._outputs.values())
            max_rows = next(upper(v.spec.shape[0]) for v in values if v.name == name)
            self._memories[name] = Memory(self._backend, name, spec, max_rows, NUM_PLACES)
        pattern = PATTERNS[self._num_steps % len(PATTERNS)]
        return self._memories[name].fill(array, upper(spec.shape[0]), self._num_steps % NUM_PLACES, pattern)
