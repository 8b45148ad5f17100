"""Compiling ahead for a GPU: what a graph's steps would launch, found on tensors without memory.

A step that can run while others are compiled needs two sizes only: a single token, and the largest bucket, to which
every other step can be padded. A model is ready with their kernels. What another bucket lacks is compiled when it is
first met, while its steps go on in the larger one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import torch

from samebits.backends.gpu.buffers import empty
from samebits.backends.gpu.executable import GpuExecutable
from samebits.backends.gpu.feeding import BUCKETS, bucket_of, padded_sizes
from samebits.backends.interface import Compilation, Compiled, CompileProgress
from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, Node
from samebits.kernels.cuda.products.laid_out import carries
from samebits.kernels.record import Kernel
from samebits.kernels.triton.lib.builds import noting_launches
from samebits.kernels.triton.lib.devices import MEMORYLESS, DeviceFacts
from samebits.kernels.triton.lib.tensors import DeviceTensor
from samebits.kernels.triton.table import compile_pool

# Sizes that are not padded: Triton tells 1, multiples of 16 and other numbers apart, and launchers choose by ranges.
LARGE_STEPS = (257, 272, 320, 384, 512, 768, 1024, 2048, 4096, 8192)
FEW_ROWS = (1, 2, 16)
# Rows that such steps ask for, of which the last layer's products have a form each: see passes/take_rows.py.
ASKED_ROWS = (1, 2, 16, 32, 64, 128)


class Noted(GpuExecutable):
    """A graph whose tensors have no memory. Layers repeat, and so do results without contents: a launch is met once."""

    def __init__(self, graph: Graph, kernels: Sequence[Kernel]) -> None:
        super().__init__(graph, kernels, MEMORYLESS)
        self._packers = {
            value.name: kernel.prepack[name]
            for node, kernel in zip(graph.nodes, kernels, strict=True)
            for name, value in node.inputs.items()
            if name in kernel.prepack and graph.kinds.get(value.name) == "weight"
        }
        self._inputs: dict[object, DeviceTensor] = {}
        self._results: dict[object, tuple[DeviceTensor, ...]] = {}

    def meet(self, dims: Mapping[str, int]) -> None:
        """Makes the launches of a step of these sizes, to be noted by whoever listens."""
        self._results.clear()
        for value in self._graph.inputs:
            is_constant = value.name in self._graph.kinds
            self._tensors[value.name] = self._input(value.name, value.spec if is_constant else value.spec.at(dims))
        self._walk()

    def _input(self, name: str, spec: TensorSpec) -> DeviceTensor:
        packer = self._packers.get(name)
        key = spec, packer
        if key not in self._inputs:
            tensor = empty(spec, MEMORYLESS)
            self._inputs[key] = packer(tensor) if packer else tensor
        return self._inputs[key]

    def _launch(self, node: Node, kernel: Kernel, values: Mapping[str, DeviceTensor]) -> tuple[DeviceTensor, ...]:
        given = tuple((name, _look(values[value.name])) for name, value in node.inputs.items())
        key = kernel.name, tuple(node.attrs.items()), given
        if key not in self._results:
            self._results[key] = super()._launch(node, kernel, values)
        return self._results[key]


def _look(tensor: DeviceTensor) -> object:
    """All that a launcher can see of a tensor without memory."""
    if isinstance(tensor, torch.Tensor):
        return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.data_ptr() % 16, carries(tensor)
    return type(tensor), tensor.format.name, tensor.shape, tensor.scale, _look(tensor.data)


@dataclass(frozen=True)
class StepSize:
    """Sizes of the symbols in some steps: the bucket they are padded to, None for none; whether all wait for them."""

    bucket: int | None
    dims: dict[str, int]
    is_first: bool

    @property
    def label(self) -> str:
        """What it is called: the number of tokens, where there are tokens."""
        if self.bucket is not None:
            return f"up to {self.bucket} tokens"
        return f"{self.dims['T']} tokens" if "T" in self.dims else "sampling and copies"


def sizes_of(graph: Graph) -> Iterator[StepSize]:
    """All that a graph is compiled for, what is needed first first."""
    specs = [value.spec for value in graph.inputs if value.name not in graph.kinds]
    limits = {d.name: d.limit for spec in specs for d in spec.shape if isinstance(d, Sym)}
    if "T" not in limits:  # sampling and copies: nothing is padded
        for count in FEW_ROWS:
            yield StepSize(None, {name: min(limit, count) for name, limit in limits.items()}, is_first=True)
        return
    largest = bucket_of(limits["T"]) or BUCKETS[-1]
    needed_first = (1, largest)
    others = [bucket for bucket in BUCKETS if 1 < bucket < largest]
    for bucket in dict.fromkeys((*needed_first, *others)):
        yield StepSize(bucket, padded_sizes(specs, bucket), bucket in needed_first)
    large = {count for count in (*LARGE_STEPS, limits["T"]) if largest < count <= limits["T"]}
    asked = dict.fromkeys(min(rows, limits.get("B", rows)) for rows in ASKED_ROWS)
    for count, rows in zip(sorted(large), cycle(asked), strict=False):
        dims = {name: count if name == "T" else min(limit, rows) for name, limit in limits.items()}
        yield StepSize(None, dims, is_first=False)


class GraphReadiness:
    """See Readiness. What a bucket launches is noted when it is first asked for, and what is not on disk compiled."""

    def __init__(self, graph: Graph, kernels: Sequence[Kernel], note: Callable[[Noted, StepSize], set[str]]) -> None:
        """note: finds what steps of a size launch, starts to compile it, and gives its keys."""
        self._noted, self._note = Noted(graph, kernels), note
        self._sizes = list(sizes_of(graph))
        self._keys: dict[int | None, set[str]] = {}
        self._ready: set[int | None] = set()

    def meet(self, only_first: bool) -> None:
        """Starts to compile what is needed first, or everything."""
        for bucket in dict.fromkeys(size.bucket for size in self._sizes if size.is_first or not only_first):
            self._keys_of(bucket)

    def is_ready(self, bucket: int | None) -> bool:
        if bucket not in self._ready and compile_pool().is_made(self._keys_of(bucket)):
            self._ready.add(bucket)
        return bucket in self._ready

    def stands_in(self, bucket: int | None) -> bool:
        return bucket in self._keys and self.is_ready(bucket)

    def wait(self, bucket: int | None) -> None:
        if not self.is_ready(bucket):
            compile_pool().wait(self._keys_of(bucket))

    def _keys_of(self, bucket: int | None) -> set[str]:
        if bucket not in self._keys:
            sizes = [size for size in self._sizes if size.bucket == bucket]
            self._keys[bucket] = set().union(*(self._note(self._noted, size) for size in sizes))
        return self._keys[bucket]


class AheadCompiler:
    """Compiles for one GPU, here or described."""

    def __init__(self, facts: DeviceFacts) -> None:
        self._facts = facts
        self._graphs: list[GraphReadiness] = []
        self._per_size: dict[str, set[str]] = {}

    def start(self, graph: Graph, kernels: Sequence[Kernel], is_needed_first: bool) -> GraphReadiness:
        """Starts to compile what is not on disk of all that steps need to run at all."""
        readiness = GraphReadiness(graph, kernels, self._note)
        self._graphs.append(readiness)
        if is_needed_first:
            readiness.meet(only_first=True)
        return readiness

    def wait(self, progress: CompileProgress | None, everything: bool) -> Compilation:
        """Returns when what was met so far is compiled, or everything. A pool that fails is told of."""
        if everything:
            for readiness in self._graphs:
                readiness.meet(only_first=False)
        pool = compile_pool()
        pool.wait(progress=progress)
        if pool.failure:
            warnings.warn(f"{pool.failure}; kernels are compiled one by one when they are met", stacklevel=2)
        compiled = [Compiled(m.build.name, m.seconds, m.error) for m in pool.outcomes() if m.seconds is not None]
        sizes = {label: len(keys) for label, keys in self._per_size.items()}
        return Compilation(len(set().union(*self._per_size.values())), sizes, compiled)

    def _note(self, noted: Noted, size: StepSize) -> set[str]:
        with noting_launches(self._facts) as builds:
            noted.meet(size.dims)
        self._per_size.setdefault(size.label, set()).update(builds)
        compile_pool().submit(builds.values())
        return set(builds)
