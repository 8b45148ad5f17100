"""What a caller bound, and what has to be copied around a run because kernels cannot work on it in place.

A view that is no range of rows is one such thing. Another is memory under two names one of which is written: a dispatch
of WebGPU binds a buffer for reading or for writing. A third is rows that start where a kernel cannot load four words.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.backends.webgpu.buffers import (
    WebGpuBuffer,
    WeightBuffer,
    base_of,
    byte_range,
    first_row_of,
    plain_base,
    read,
    stored_bytes,
    write,
)
from samebits.backends.webgpu.device import Gpu
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.graph import Graph
from samebits.graph.uses import memory_roots, overwritten_at, state_values

Place = tuple[WebGpuBuffer, int]  # rows of a buffer from this one on


class Bindings:
    """Memory of the graph's inputs and outputs, by name.

    places    where kernels find it: not for packed weights, nor for outputs that are copied from memory of our own
    version   another number whenever `places` or a weight is not what it was
    """

    def __init__(self, gpu: Gpu, graph: Graph, gathered: Container[str]) -> None:
        """gathered: inputs that are copied elsewhere before every run, whatever they lie in."""
        self._gpu, self._gathered = gpu, gathered
        self._specs = {v.name: v.spec for v in (*graph.inputs, *graph.outputs)}
        roots, state = memory_roots(graph), state_values(graph)
        self._outputs = {v.name for v in graph.outputs} - state
        self._made_in_place = {name for name in self._outputs if roots[name] != name}  # in memory of our own
        self._updated = {roots[name] for name in overwritten_at(graph) if name in state}
        self.bound: dict[str, Buffer | View] = {}
        self.unbound = {v.name for v in graph.inputs}
        self.places: dict[str, Place] = {}
        self.version = 0
        self._copies: dict[str, WebGpuBuffer] = {}  # of inputs
        self._apart: set[str] = set()  # what a kernel could not load in place
        self._is_settled = True

    def bind(self, name: str, buffer: Buffer | View) -> None:
        """BadInput for what the graph cannot take."""
        if name not in self._specs:
            raise BadInput("webgpu", "bind", name, f"an input or output: {', '.join(self._specs)}")
        base_of(buffer)
        if not self._specs[name].takes(buffer.spec):
            raise BadInput("webgpu", name, str(buffer.spec), str(self._specs[name]))
        old = self.bound.get(name)
        self.bound[name] = buffer
        self.unbound.discard(name)
        if name in self._gathered:
            return
        if old is None or _identity(old) != _identity(buffer):
            self._apart.discard(name)
            self._is_settled = False
        elif name in self._copies and old.spec != buffer.spec:
            self._is_settled = False

    def set_apart(self, memory: Any) -> bool:
        """Copies from now on what is bound in this memory; False where nothing is that lies there directly."""
        names = {n for n, (buffer, _) in self.places.items() if buffer.memory is memory and n not in self._copies}
        self._apart |= names
        self._is_settled = self._is_settled and not names
        return bool(names)

    def settle(self) -> None:
        """Decides what is copied, where bindings changed since the last call."""
        if self._is_settled:
            return
        kernels_see = {n: b for n, b in self.bound.items() if n not in self._gathered}
        plain = {n: b for n, b in kernels_see.items() if not isinstance(base_of(b), WeightBuffer)}
        copied = (
            self._apart
            | self._made_in_place
            | {n for n, b in plain.items() if first_row_of(b) is None}
            | self._conflicts(plain)
        )
        self.places = {}
        old, self._copies = self._copies, {}
        for name, buffer in plain.items():
            if name not in copied:
                self.places[name] = (plain_base(buffer), first_row_of(buffer) or 0)
            elif name not in self._outputs:
                copy = old.get(name)
                if copy is None or copy.spec != buffer.spec:
                    copy = WebGpuBuffer(buffer.spec, self._gpu.buffer(stored_bytes(buffer.spec)))
                self._copies[name] = copy
                self.places[name] = (copy, 0)
        self.version += 1
        self._is_settled = True

    def _conflicts(self, plain: dict[str, Buffer | View]) -> set[str]:
        """Names in memory that has others too and is written."""
        names_in: dict[int, set[str]] = {}
        for name, buffer in plain.items():
            names_in.setdefault(id(plain_base(buffer).memory), set()).add(name)
        found: set[str] = set()
        for names in names_in.values():
            if len(names) > 1:
                found |= names & self._outputs
                if names & self._updated:
                    found |= names - self._updated
        return found

    def copy_in(self, encoder: Any) -> None:
        """Adds the copies that a run begins with."""
        for name, copy in self._copies.items():
            self._copy(encoder, self.bound[name], copy)

    def _copy(self, encoder: Any, source: Buffer | View, target: WebGpuBuffer) -> None:
        found = byte_range(source)
        if found is None:
            base = read(self._gpu, plain_base(source))
            write(self._gpu, target, source.resolve(base) if isinstance(source, View) else base)
        elif found[1]:
            target.scale = plain_base(source).scale
            encoder.copy_buffer_to_buffer(plain_base(source).memory, found[0], target.memory, 0, found[1])

    def copy_out(self, encoder: Any, own: Callable[[str], WebGpuBuffer]) -> list[tuple[WebGpuBuffer, Buffer | View]]:
        """Adds the copies that a run ends with; returns (from, to) of those that go through the host, after it.

        own   the memory of an output that nothing is written to directly
        """
        ours = {name: own(name) for name in self._outputs if name in self.bound and name not in self.places}
        ours |= {name: copy for name, copy in self._copies.items() if name in self._updated}
        later = []
        for name, source in ours.items():
            target = self.bound[name]
            found = byte_range(target)
            if found is None:
                later.append((source, target))
            elif found[1]:
                memory = plain_base(target).memory
                encoder.copy_buffer_to_buffer(source.memory, 0, memory, found[0], found[1])
        return later

    def store(self, source: WebGpuBuffer, target: Buffer | View) -> None:
        """One of those copies: all of the target's buffer comes here and goes back."""
        base = plain_base(target)
        whole = read(self._gpu, base)
        part = target.resolve(whole) if isinstance(target, View) else whole
        _storage(part)[...] = _storage(read(self._gpu, source))
        write(self._gpu, base, whole)


def _identity(buffer: Buffer | View) -> object:
    """Equal for bindings that kernels see alike: sizes are the step's."""
    base = base_of(buffer)
    if isinstance(base, WeightBuffer):
        return id(base)
    return id(base.memory), base.num_blocks, _start(buffer)


def _start(buffer: Buffer | View) -> object:
    first = first_row_of(buffer)
    return first if first is not None or not isinstance(buffer, View) else (buffer.spec, buffer.steps)


def _storage(tensor: HostTensor) -> np.ndarray:
    return tensor.data if isinstance(tensor, Packed) else tensor
