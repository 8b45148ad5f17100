"""A compiled graph on a GPU: kernels launched one after another, or a captured graph of them replayed."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from samebits.backends.bound_sizes import BoundSizes
from samebits.backends.gpu.buffers import GpuBuffer, copy_into, resolved
from samebits.backends.gpu.feeding import Feed, bucket_of
from samebits.backends.gpu.memory import explained
from samebits.backends.gpu.readiness import AlwaysReady, Readiness
from samebits.backends.interface import Buffer, Executable, View
from samebits.core.errors import BadInput, SamebitsError, Unsupported
from samebits.core.shapes import TensorSpec
from samebits.graph import Graph, Node
from samebits.graph.uses import memory_roots, overwritten_at, state_values
from samebits.kernels.record import Kernel
from samebits.kernels.triton.lib.chaining import is_late_reader
from samebits.kernels.triton.lib.registry import INTERPRETED
from samebits.kernels.triton.lib.tensors import Blocks, DeviceTensor, Tiled

MAX_CAPTURE_ATTEMPTS = 3  # per bucket, since what disturbed one capture may be gone in the next step

# Graphs whose capture could not be ended. torch's allocator keeps a pointer to each of them, so none may be freed.
_BROKEN_GRAPHS: list[torch.cuda.CUDAGraph] = []


@dataclass
class Captured:
    """A graph of launches for one bucket, and the memory its results lie in."""

    graph: torch.cuda.CUDAGraph
    outputs: dict[str, DeviceTensor]


class GpuExecutable(Executable):
    """See the interface. Steps that are fed are padded to a bucket and captured when the bucket comes a second time."""

    readiness: Readiness = AlwaysReady()

    def __init__(
        self,
        graph: Graph,
        kernels: Sequence[Kernel],
        device: torch.device,
        start_compiling: Callable[[Graph, Sequence[Kernel], bool], Readiness] | None = None,
    ) -> None:
        """start_compiling: for `compile_ahead`; without it nothing is."""
        self._start_compiling = start_compiling
        self._graph, self._kernels, self._device = graph, kernels, device
        self._specs = {v.name: v.spec for v in (*graph.inputs, *graph.outputs)}
        self._bound: dict[str, Buffer | View] = {}
        self._tensors: dict[str, DeviceTensor] = {}  # what is bound, resolved
        self._blocks: dict[str, tuple[GpuBuffer, Blocks]] = {}  # memory whose tensor scale may change
        self._fed: dict[str, torch.Tensor] = {}
        self._dims: dict[str, int] = {}
        self._made: dict[str, DeviceTensor] = {}  # of the last run
        self._bound_sizes = BoundSizes("gpu", graph)
        self._roots = memory_roots(graph)
        self._own_outputs = {v.name for v in graph.outputs} - state_values(graph)
        self._released = _last_uses(graph)
        self._fresh = _must_be_fresh(graph)
        self._after_integers = _reads_made_integers(graph, kernels)
        self._feed: Feed | None = None
        self._bucket: int | None = None
        self._seen: set[int] = set()
        self._captured: dict[int, Captured] = {}
        self._failed_captures: Counter[int] = Counter()  # by bucket
        self._pool: Any = None
        self._bound_outputs: list[str] = []
        self._pads = any(graph.kinds.get(v.name) == "cache" for v in graph.inputs)  # a model's step
        self._captures = self._pads and device.type == "cuda" and not INTERPRETED

    def compile_ahead(self, is_needed_first: bool = True) -> None:
        if self._start_compiling is not None:
            self.readiness = self._start_compiling(self._graph, self._kernels, is_needed_first)

    def bind(self, name: str, buffer: Buffer | View) -> None:
        if name not in self._specs:
            raise BadInput("gpu", "bind", name, f"an input or output: {', '.join(self._specs)}")
        tensor = resolved(buffer)
        _check_spec(name, buffer.spec, self._specs[name], tensor)
        self._bound[name], self._tensors[name] = buffer, tensor
        self._bound_sizes.bind(name, buffer.spec)
        self._blocks.pop(name, None)
        base = buffer.base if isinstance(buffer, View) else buffer
        if isinstance(base, GpuBuffer) and isinstance(base.tensor, Blocks):
            self._blocks[name] = base, base.tensor
        self._fed = {fed: given for fed, given in self._fed.items() if fed != name}
        self._discard_captured()  # captured launches hold addresses
        self._bound_outputs = [n for n in self._bound if n in self._own_outputs]

    def _discard_captured(self) -> None:
        self._captured.clear()
        self._pool = None  # whose memory goes with the last of them

    def _follow_scales(self) -> None:
        """Take over the tensor scales that were copied into bound memory. Launches have them as numbers."""
        changed = [name for name, (base, tensor) in self._blocks.items() if base.tensor is not tensor]
        for name in changed:
            base = self._blocks[name][0]
            if isinstance(base.tensor, Blocks):
                self._blocks[name] = base, base.tensor
            self._tensors[name] = resolved(self._bound[name])
        if changed:
            self._discard_captured()

    def feed(self, arrays: Mapping[str, np.ndarray]) -> bool:
        if self._feed is None:
            specs = {name: self._specs[name] for name in arrays}
            self._feed = Feed(specs, self._device, self._pads, lambda count: bucket_of(count, self.readiness))
        shape, self._dims = self._feed.send(arrays)
        self._bucket, self._fed = shape.bucket, shape.layout.tensors
        self._bound_sizes.release(arrays)
        self._bound_sizes.prepare(self._dims)
        return True

    def prepare(self, dims: Mapping[str, int]) -> None:
        self._dims, self._bucket = dict(dims), None
        self._bound_sizes.prepare(dims)

    def run(self) -> None:
        self._bound_sizes.check()
        self._follow_scales()
        captured = self._captured.get(self._bucket) if self._bucket else None
        if captured is None:
            self.readiness.wait(self._bucket)
            with explained(self._device, "a step"):
                self._made = self._first_runs()
        else:
            captured.graph.replay()
            self._made = captured.outputs
        for name in self._bound_outputs:
            copy_into(self._tensors[name], self._made[name])

    def reserve(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Capture the graph of a bucket, whose memory those of smaller buckets share."""
        if not self._captures:
            return
        with warnings.catch_warnings(action="ignore"):  # what fails is raised
            for _ in range(2):  # launched, then captured
                self.feed(arrays)
                self.run()
        if not self._captures:
            self._captures = True
            self._seen.clear()
            with explained(self._device, "the captured graph of a step"):
                raise torch.OutOfMemoryError

    def _first_runs(self) -> dict[str, DeviceTensor]:
        """A bucket's first step is launched, its second one captured and replayed."""
        if self._bucket is None:
            return self._walk()
        may_capture = self._captures and self._failed_captures[self._bucket] < MAX_CAPTURE_ATTEMPTS
        captured = self._capture(self._bucket) if may_capture and self._bucket in self._seen else None
        self._seen.add(self._bucket)
        if captured is None:
            return self._walk()
        captured.graph.replay()
        return captured.outputs

    def _capture(self, bucket: int) -> Captured | None:
        """Capture a bucket's launches. Return None if that fails: this step is then launched kernel by kernel.

        After MAX_CAPTURE_ATTEMPTS, or once memory has run out, later steps are not captured either.
        """
        pool, self._pool = self._pool or torch.cuda.graph_pool_handle(), None  # torch takes none again after a failure
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            # thread_local: what other threads allocate meanwhile is no business of this capture
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                outputs = self._walk()
        except BaseException as error:
            torch.cuda.set_stream(stream)  # torch leaves the capture's stream current if ending the capture fails
            graph.reset()
            _BROKEN_GRAPHS.append(graph)
            if isinstance(error, torch.OutOfMemoryError):
                self._captures = False
                torch.cuda.empty_cache()
                warnings.warn(
                    f"out of memory: a step of up to {bucket} tokens was not captured, and steps are slower from now "
                    "on; a smaller --memory leaves more for captured steps",
                    stacklevel=2,
                )
            elif isinstance(error, Exception):
                self._failed_captures[bucket] += 1
                reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
                warnings.warn(f"a step of up to {bucket} tokens could not be captured: {reason}", stacklevel=2)
            else:
                raise
            return None
        self._pool = pool
        self._captured[bucket] = Captured(graph, outputs)
        return self._captured[bucket]

    def _walk(self) -> dict[str, DeviceTensor]:
        """Launches every node; returns the graph's outputs."""
        values = {**self._tensors, **self._fed}
        missing = [v.name for v in self._graph.inputs if v.name not in values]
        if missing:
            raise BadInput("gpu", "run", f"nothing bound to {', '.join(missing)}", "memory for every input")
        for number, (node, kernel) in enumerate(zip(self._graph.nodes, self._kernels, strict=True)):
            if number in self._after_integers:
                torch.empty(1, device=self._device).zero_()  # a plain launch: nothing overlaps it
            for value, result in zip(node.outputs, self._launch(node, kernel, values), strict=True):
                values[value.name] = _copied(result) if value.name in self._fresh else result
            for name in self._released[number]:
                del values[name]
        return {value.name: values[value.name] for value in self._graph.outputs}

    def _launch(self, node: Node, kernel: Kernel, values: Mapping[str, DeviceTensor]) -> tuple[DeviceTensor, ...]:
        arguments = {
            t.name: values[node.inputs[t.name].name] if t.name in node.inputs else None for t in kernel.op.inputs
        }
        try:
            results = kernel.run(**arguments, **node.attrs)
        except (SamebitsError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # of the compiler, mostly: its first line says what it was about
            first = next(iter(str(error).strip().splitlines()), "")
            raise Unsupported(f"{kernel.name} could not be launched: {type(error).__name__}: {first}") from error
        return results if isinstance(results, tuple) else (results,)

    def output(self, index: int) -> Buffer:
        value = self._graph.outputs[index]
        bound = self._bound.get(value.name) or self._bound.get(self._roots[value.name])
        if bound is not None:
            return bound.base if isinstance(bound, View) else bound
        spec, made = value.spec.at(self._dims), self._made[value.name]
        if isinstance(made, torch.Tensor) and made.shape[:1] != spec.upper_shape[:1]:  # padded rows at the end
            made = made[: spec.upper_shape[0]]
        return GpuBuffer(spec, made)


def _check_spec(name: str, given: TensorSpec, needed: TensorSpec, tensor: DeviceTensor) -> None:
    if isinstance(tensor, Tiled):
        if (tensor.format.name, tensor.shape) != (needed.format, needed.upper_shape):
            raise BadInput("gpu", name, f"{tensor.format.name}{list(tensor.shape)}", str(needed))
        return
    if not needed.takes(given):
        raise BadInput("gpu", name, str(given), str(needed))


def _last_uses(graph: Graph) -> list[list[str]]:
    """For every node, the values that nobody reads after it: their memory may be used again."""
    kept = {v.name for v in (*graph.inputs, *graph.outputs)}
    last: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        for value in (*node.inputs.values(), *node.outputs):
            last[value.name] = number
    released: list[list[str]] = [[] for _ in graph.nodes]
    for name, number in last.items():
        if name not in kept:
            released[number].append(name)
    return released


def _must_be_fresh(graph: Graph) -> set[str]:
    """Results of view ops that need memory of their own: handed out, or written while the other is still read."""
    fixed = {v.name for v in (*graph.inputs, *graph.outputs)} | overwritten_at(graph).keys()
    fresh = set()
    for node in graph.nodes:
        if node.op.is_view:
            (source,), (result,) = node.inputs.values(), node.outputs
            if source.name in overwritten_at(graph) or result.name in fixed:
                fresh.add(result.name)
    return fresh


def _reads_made_integers(graph: Graph, kernels: Sequence[Kernel]) -> set[int]:
    """Numbers of nodes whose kernels take integers that another node makes for constants, see chaining.py."""
    made = {v.name for node in graph.nodes for v in node.outputs if v.spec.format == "i32"}
    readers = {n for n, node in enumerate(graph.nodes) if any(v.name in made for v in node.inputs.values())}
    return {n for n in readers if not is_late_reader(kernels[n].run)}


def _copied(tensor: DeviceTensor) -> DeviceTensor:
    return tensor.clone() if isinstance(tensor, torch.Tensor) else tensor
