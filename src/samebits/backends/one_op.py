"""One op on one backend: a graph of one node, its memory, a run, its results.

The functional API, verify, debug and bench run single ops through here and nowhere else, so that a value which a device
refuses is told by the call that gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from samebits.backends.interface import Backend, Buffer, View
from samebits.backends.support import choose_kernels
from samebits.core.format import HostTensor
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph, GraphBuilder, InputKind, Value
from samebits.ops import Bound, Op
from samebits.ops.evaluate import bind_specs, spec_of


def one_node(
    op: Op, specs: Mapping[str, TensorSpec], attrs: Mapping[str, Any], kinds: Mapping[str, InputKind] | None = None
) -> Graph:
    """The op on inputs of these specs, which may hold symbols; inputs that `kinds` leaves out are of the step."""
    complete, env = bind_specs(op, specs, attrs)
    builder = GraphBuilder()
    values = {name: builder.input(name, spec, (kinds or {}).get(name, "step")) for name, spec in specs.items()}
    return builder.finish(builder.add(op, values, complete, env))


def weight_kinds(op: Op) -> dict[str, InputKind]:
    """The inputs that a model would load as weights: kernels may want them rearranged."""
    return dict.fromkeys(op.weights, "weight")


def cache_kinds(op: Op) -> dict[str, InputKind]:
    """The inputs that a model would keep as caches: kernels may want them in a layout of their own."""
    return dict.fromkeys(op.caches, "cache")


class Finished:
    """`with Finished(backend):` waits for all that is launched inside, however that ends.

    So no later call hears of a value that this one gave. BadInput where the device met a value it refuses; an error
    from inside comes first, with that as its note.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self._backend.sync()
        except Exception as later:
            if error is None:
                raise
            error.add_note(f"and while waiting for {self._backend.name}: {later}")


class OneOp:
    """An op compiled alone. It runs as often as it is asked to, on the memory that is bound then.

    graph       its one node; inputs have the names of the op's
    executable  for those who time it or look at a result in place
    """

    def __init__(
        self,
        backend: Backend,
        op: Op,
        specs: Mapping[str, TensorSpec],
        attrs: Mapping[str, Any],
        tier: Tier,
        kinds: Mapping[str, InputKind] | None = None,
    ) -> None:
        """As for `one_node`. Unsupported where no kernel serves it at the tier."""
        self._backend, self._tier = backend, tier
        self.graph = one_node(op, specs, attrs, kinds)
        self.executable = backend.compile(self.graph, tier)

    @cached_property
    def _packers(self) -> dict[str, Callable[[Any], Any]]:
        if not self.graph.weights:
            return {}
        (kernel,) = choose_kernels(self._backend, self.graph, self._tier)
        return {name: packer for name, packer in kernel.prepack.items() if name in self.graph.weights}

    def bind(self, memory: Mapping[str, Buffer | View]) -> None:
        """Gives inputs and results their memory, by the names of the graph's values."""
        for name, buffer in memory.items():
            self.executable.bind(name, buffer)

    def put(self, tensors: Mapping[str, HostTensor]) -> dict[str, Buffer]:
        """Copies inputs to the device and binds the copies, which it returns: weights and caches as kernels want."""
        buffers = {name: self._copied(name, tensor) for name, tensor in tensors.items()}
        self.bind(buffers)
        return buffers

    def _copied(self, name: str, tensor: HostTensor) -> Buffer:
        if name in self._packers:
            return self._backend.adopt_packed(self._packers[name], tensor)
        buffer = self._backend.alloc(spec_of(tensor), self.executable.layout(name))
        self._backend.copy_in(buffer, tensor)
        return buffer

    def own_results(self) -> dict[int, Value]:
        """Results that can be given memory: not those written into an input, nor those without axes. By number."""
        written = {new.name for _, new in self.graph.nodes[0].writes}
        return {i: v for i, v in enumerate(self.graph.outputs) if v.name not in written and v.spec.shape}

    def run(self, dims: Mapping[str, int] | None = None) -> None:
        """One run to its end, at the sizes `dims` of the specs' symbols. BadInput for a value the device refuses."""
        if dims:
            self.executable.prepare(dims)
        with Finished(self._backend):
            self.executable.run()

    def result(self, index: int) -> HostTensor:
        """A fresh copy of a result of the last run; all of the memory where rows of it were bound."""
        return self._backend.copy_out(self.executable.output(index))


def run_op(backend: Backend, bound: Bound, tier: Tier) -> tuple[HostTensor, ...]:
    """The results of a checked call as fresh host tensors, those of in-place updates too: nothing given is written.

    Unsupported where no kernel serves it, BadInput where the device refuses a value.
    """
    op = OneOp(backend, bound.op, bound.specs, bound.attrs, tier)
    op.put(bound.tensors)
    op.run()
    return tuple(op.result(i) for i in range(len(op.graph.outputs)))
