"""The reference backend: every op by its numpy definition, at every tier, on any machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from samebits.backends.bound_sizes import BoundSizes
from samebits.backends.interface import Backend, Buffer, Caps, Executable, View
from samebits.backends.support import choose_kernels
from samebits.core.errors import BadInput, Unavailable
from samebits.core.format import FORMATS, BlockFormat, Codes, HostTensor, Packed, copy_tensor, store
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.cpp import flushing_subnormals, native
from samebits.kernels.record import Kernel, KernelTable
from samebits.ops import OPS, bind, evaluate
from samebits.ops.evaluate import spec_of
from samebits.ops.record import Op


class HostBuffer(Buffer):
    """A host tensor under a backend's roof."""

    def __init__(self, spec: TensorSpec, tensor: HostTensor) -> None:
        self.spec = spec
        self.tensor = tensor


class Resident(Packed):
    """A packed tensor in a buffer, taken apart once: a weight serves many steps.

    Caches are written in place, but ops read them by rows, and rows of a resident tensor are plain ones.
    """

    @cached_property
    def _codes(self) -> Codes:
        return super().codes()

    def codes(self) -> Codes:
        return self._codes


def host_tensor(spec: TensorSpec) -> HostTensor:
    """A zeroed host tensor of the spec, symbols at their upper bound."""
    shape, fmt = spec.upper_shape, FORMATS[spec.format]
    if isinstance(fmt, BlockFormat):
        return Packed(fmt, np.zeros((*shape[:-1], fmt.row_bytes(shape[-1])), np.uint8))
    return np.zeros(shape, fmt.dtype)


def resolved(buffer: Buffer | View, where: str, argument: str) -> HostTensor:
    """The host tensor that a buffer of this backend or a view of one stands for, without a copy where possible."""
    base = buffer.base if isinstance(buffer, View) else buffer
    if not isinstance(base, HostBuffer):
        raise BadInput(where, argument, type(base).__name__, "a buffer of this backend")
    return buffer.resolve(base.tensor) if isinstance(buffer, View) else base.tensor


def _run_reference(op: Op, **arguments: Any) -> tuple[HostTensor, ...]:
    return evaluate(bind(op, **arguments))


@cache
def reference_kernels() -> KernelTable:
    """One kernel per op record: the definition itself."""
    table = KernelTable("numpy")
    for op in OPS:
        run = partial(_run_reference, op)
        run.__name__ = op.name  # type: ignore[attr-defined]
        table.add(Kernel(op, "numpy", Tier.PORTABLE, run))
    return table


class ReferenceExecutable(Executable):
    """Runs the chosen kernels one after another on host tensors."""

    def __init__(self, backend: Backend, graph: Graph, tier: Tier) -> None:
        self._graph = graph
        self._backend = backend
        self._memory: dict[str, Buffer | View] = {}
        self._bound: dict[str, HostTensor] = {}  # that memory as the last run found it
        self._values: dict[str, HostTensor] = {}
        self._kernels = choose_kernels(backend, graph, tier)
        self._bound_sizes = BoundSizes(backend.name, graph)

    def bind(self, name: str, buffer: Buffer | View) -> None:
        self._bound[name] = resolved(buffer, "reference", name)
        self._memory[name] = buffer
        self._bound_sizes.bind(name, buffer.spec)

    def prepare(self, dims: Mapping[str, int]) -> None:
        self._bound_sizes.prepare(dims)

    def run(self) -> None:
        self._bound_sizes.check()
        # anew, for what was copied in since: other bytes, and with them another scale and other codes
        self._bound = {name: resolved(buffer, "reference", name) for name, buffer in self._memory.items()}
        self._values = dict(self._bound)
        for node, kernel in zip(self._graph.nodes, self._kernels, strict=True):
            arguments = {name: self._values[value.name] for name, value in node.inputs.items()}
            results = kernel.run(**arguments, **node.attrs)
            for value, result in zip(node.outputs, results, strict=True):
                self._values[value.name] = store(self._bound.get(value.name), result)

    def output(self, index: int) -> Buffer:
        value = self._graph.outputs[index]
        return HostBuffer(value.spec, self._values[value.name])


class ReferenceBackend(Backend):
    name = "reference"

    def probe(self) -> Caps:
        return Caps(device=f"numpy {np.__version__}", features=("defines every op",))

    def kernels(self) -> tuple[KernelTable, ...]:
        return (reference_kernels(),)

    def flushing(self) -> AbstractContextManager[None] | None:
        try:
            native()
        except Unavailable:  # numpy has no switch of its own
            return None
        return flushing_subnormals()

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> HostBuffer:
        return HostBuffer(spec, host_tensor(spec))

    def adopt(self, host: HostTensor) -> Buffer:
        return HostBuffer(spec_of(host), host) if isinstance(host, np.ndarray) else super().adopt(host)

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, HostBuffer) or spec_of(host) != buffer.spec:
            raise BadInput("copy_in", "host", spec_of(host), str(buffer.spec))
        if isinstance(host, Packed) and isinstance(buffer.tensor, Packed):
            buffer.tensor.data[...] = host.data
            buffer.tensor = Resident(host.format, buffer.tensor.data, host.scale)
        elif isinstance(buffer.tensor, np.ndarray):
            buffer.tensor[...] = host

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        return copy_tensor(resolved(buffer, "copy_out", "buffer"))

    def compile(self, graph: Graph, tier: Tier) -> ReferenceExecutable:
        return ReferenceExecutable(self, graph, tier)
