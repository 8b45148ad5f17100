"""The backend: what Samebits calls, in the order in which it calls it."""

from __future__ import annotations

from samebits.backends.interface import Backend, Buffer, Caps, Executable, View
from samebits.backends.support import choose_kernel
from samebits.core.errors import BadInput, Unsupported
from samebits.core.format import HostTensor
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import KernelTable
from samebits.ops import OPS
from samebits_toy.device import pack, refuted_tiers, table
from samebits_toy.memory import TileBuffer, Window, download, upload, window_of


class ToyBackend(Backend):
    """A tile accelerator that does not exist. Every call is synchronous, so `sync` is left as it is."""

    name = "toy"

    def probe(self) -> Caps:
        return Caps(
            device="pretend accelerator, tiles of 32 x 32",
            features=("unmappable memory", "int8 dot of 32"),
            refuted=refuted_tiers(),
        )

    def kernels(self) -> tuple[KernelTable, ...]:
        from samebits_toy import matmul, paged, rows  # noqa: F401  (registers kernels; listing devices imports none)

        return (table,)

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> TileBuffer:
        return TileBuffer(spec)

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, TileBuffer):
            raise BadInput("copy_in", "buffer", type(buffer).__name__, "a buffer of this backend")
        upload(buffer, host)

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        base = buffer.base if isinstance(buffer, View) else buffer
        if not isinstance(base, TileBuffer):
            raise BadInput("copy_out", "buffer", type(base).__name__, "a buffer of this backend")
        host = download(base)
        return buffer.resolve(host) if isinstance(buffer, View) else host

    def compile(self, graph: Graph, tier: Tier) -> ToyExecutable:
        return ToyExecutable(self, graph, tier)


class ToyExecutable(Executable):
    """Kernels chosen once, in `compile`; `run` calls them one after another."""

    def __init__(self, backend: ToyBackend, graph: Graph, tier: Tier) -> None:
        values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
        symbolic = next((v for v in values if any(isinstance(d, Sym) for d in v.spec.shape)), None)
        if symbolic is not None:
            raise Unsupported(f"toy: {symbolic} has a size known only at run time")
        self._backend, self._graph = backend, graph
        self._kernels = [
            choose_kernel(backend, OPS[n.op.name], {k: v.spec for k, v in n.inputs.items()}, n.attrs, tier)
            for n in graph.nodes
        ]
        self._aliases = {
            node.outputs[i].name: node.inputs[result.alias_of].name
            for node in graph.nodes
            for i, result in enumerate(OPS[node.op.name].active_results(node.inputs, dict(node.attrs)))
            if result.alias_of
        }
        self._written = {self._root(v.name) for node in graph.nodes for v in node.outputs}
        outputs = [v for node in graph.nodes for v in node.outputs if v.name not in self._aliases]
        self._memory: dict[str, Buffer | View] = {v.name: backend.alloc(v.spec) for v in outputs}

    def _root(self, name: str) -> str:
        """The value whose memory this one lives in."""
        while name in self._aliases:
            name = self._aliases[name]
        return name

    def bind(self, name: str, buffer: Buffer | View) -> None:
        root = self._root(name)
        if root in self._written and window_of(buffer) is None:
            raise BadInput("toy", name, "a view that is more than whole rows", "memory that can be written in place")
        self._memory[root] = buffer

    def _window(self, name: str) -> Window:
        """Rows in place where the view allows it, else a copy made now: the view's base may have changed."""
        memory = self._memory.get(self._root(name))
        if memory is None:
            raise BadInput("toy", name, "no buffer", "bind() before run()")
        window = window_of(memory)
        if window is None and isinstance(memory, View):
            window = window_of(self._backend.materialize(memory))
        if window is None:
            raise BadInput("toy", name, "memory of another kind", "a buffer or a view of this backend")
        return window

    def run(self) -> None:
        for node, kernel in zip(self._graph.nodes, self._kernels, strict=True):
            arguments = {name: self._window(value.name) for name, value in node.inputs.items()}
            results = kernel.run(**arguments, **node.attrs)
            for value, result in zip(node.outputs, results, strict=True):
                if value.name not in self._aliases:
                    pack(self._window(value.name), result)

    def output(self, index: int) -> Buffer:
        memory = self._memory[self._root(self._graph.outputs[index].name)]
        return self._backend.materialize(memory) if isinstance(memory, View) else memory
