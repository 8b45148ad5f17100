"""Backends whose kernels are right and whose executables are not: what only shows when one runs again, or several
nodes run together, or many launches are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from samebits.backends.interface import Backend, Buffer, View
from samebits.backends.reference import HostBuffer, ReferenceBackend, ReferenceExecutable
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.graph import Graph, Node
from samebits.graph.uses import memory_roots

Run = Callable[..., tuple[HostTensor, ...]]


class HookedExecutable(ReferenceExecutable):
    """The reference's, with a hand on every call of a kernel."""

    def __init__(self, backend: Backend, graph: Graph, tier: Tier) -> None:
        super().__init__(backend, graph, tier)
        pairs = zip(graph.nodes, self._kernels, strict=True)
        self._kernels = [
            replace(kernel, run=partial(self.call, i, node, kernel.run)) for i, (node, kernel) in enumerate(pairs)
        ]
        self.kept: dict[Any, Any] = {}

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        return run(**arguments)


class Hooked(ReferenceBackend):
    name = "planted"
    executable: ClassVar[type[HookedExecutable]] = HookedExecutable

    def compile(self, graph: Graph, tier: Tier) -> ReferenceExecutable:
        return self.executable(self, graph, tier)


def planted(executable: type[HookedExecutable]) -> Hooked:
    """A backend with these executables."""
    return type(executable.__name__, (Hooked,), {"executable": executable})()


class WeightKept(HookedExecutable):
    """The weight of the first run serves all later ones."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        for name in arguments.keys() & {"weight", "table"}:
            arguments[name] = self.kept.setdefault((index, name), copy_tensor(arguments[name]))
        return run(**arguments)


class WeightPacked(HookedExecutable):
    """A weight is taken apart once, and found again by its address."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        if isinstance(arguments.get("weight"), Packed):
            place = arguments["weight"].data.__array_interface__["data"][0]
            arguments["weight"] = self.kept.setdefault(place, copy_tensor(arguments["weight"]))
        return run(**arguments)


class TableKept(HookedExecutable):
    """Pages are looked up once, as long as there are equally many."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        if "kv_indices" in arguments:
            pages = arguments["kv_indices"]
            arguments["kv_indices"] = self.kept.setdefault((index, len(pages)), pages.copy())
        return run(**arguments)


class FirstGrid(HookedExecutable):
    """Launches as many rows as in the first run; the others stay as they are."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        results = run(**arguments)
        if not node.op.writes:
            rows = self.kept.setdefault(index, len(results[0]))
            for result in results:
                (result.data if isinstance(result, Packed) else result)[rows:] = 0
        return results


class StaleTail(HookedExecutable):
    """Results lie in memory for the most rows so far, and all of it is handed out."""

    def output(self, index: int) -> Buffer:
        found = super().output(index)
        tensor, largest = found.tensor, self.kept.get(index)
        if isinstance(tensor, np.ndarray) and tensor.ndim:
            if largest is None or len(largest) < len(tensor):
                largest = self.kept[index] = tensor.copy()
            largest[: len(tensor)] = tensor
            return HostBuffer(found.spec, largest)
        return found


class FirstBinding(HookedExecutable):
    """A name that is bound stays bound, whatever is bound to it later, unless its size changes."""

    def bind(self, name: str, buffer: Buffer | View) -> None:
        if self.kept.setdefault(name, buffer.spec) != buffer.spec or name not in self._memory:
            self.kept[name] = buffer.spec
            super().bind(name, buffer)


class CopyNotSeen(HookedExecutable):
    """Tensors that are only read are taken when they are bound."""

    def bind(self, name: str, buffer: Buffer | View) -> None:
        super().bind(name, buffer)
        self.kept[name] = copy_tensor(self._bound[name])

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        for name, value in node.inputs.items():
            if value.name in self.kept and name not in node.op.writes:
                arguments[name] = self.kept[value.name]
        return run(**arguments)


class ValueOfTheRunBefore(HookedExecutable):
    """No barrier: a sum reads what the memory of its second operand held after the run before."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        if node.op.name == "add" and node.inputs["y"].name not in self._memory:
            now, before = arguments["y"], self.kept.get(index)
            self.kept[index] = now.copy()
            if before is not None:
                rows = min(len(now), len(before))
                arguments["y"] = np.concatenate([before[:rows], now[rows:]])
        return run(**arguments)


class SameSizeSkipped(HookedExecutable):
    """A node whose arguments lie where they lay, in the same sizes, is taken to be done."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        results = run(**arguments)
        if node.op.name == "rms_norm":
            before = self.kept.get(index)
            self.kept[index] = results
            if before is not None and before[0].shape == results[0].shape:
                return before
        return results


class AliasNotSeen(HookedExecutable):
    """Attention reads the caches as they were before this run's keys and values."""

    def run(self) -> None:
        caches = [v.name for v in self._graph.inputs if self._graph.kinds.get(v.name) == "cache"]
        self.kept = {name: copy_tensor(self._bound[name]) for name in caches}
        super().run()

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        roots = memory_roots(self._graph)
        for name, value in node.inputs.items():
            if roots[value.name] in self.kept and name not in node.op.writes:
                arguments[name] = self.kept[roots[value.name]]
        return run(**arguments)


class AttrsOfTheFirst(HookedExecutable):
    """Kernels are kept by op and formats; the first one's attrs are built in."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        if node.op.name in ("scale", "rms_norm", "paged_attention"):
            key = (node.op.name, *(v.spec for v in node.inputs.values()))
            arguments |= self.kept.setdefault(key, dict(node.attrs))
        return run(**arguments)


class OverwrittenTooEarly(HookedExecutable):
    """A value's memory is used again after its first reader, though there is a second."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        for name, value in node.inputs.items():
            readers = self._graph.uses[value.name]
            if value.name not in self._memory and len(readers) > 2 and index == readers[1]:
                arguments[name] = np.zeros_like(arguments[name])
        return run(**arguments)


class BadLaunch(HookedExecutable):
    """One launch in 500 loses its last element."""

    num_launches = 0

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        BadLaunch.num_launches += 1
        results = run(**arguments)
        if BadLaunch.num_launches % 500 == 0:
            last = results[-1].data if isinstance(results[-1], Packed) else results[-1]
            last[..., -1] = 0 if last[..., -1].any() else 1
        return results


class BadLastBit(BadLaunch):
    """One launch in 500 has another last bit."""

    def call(self, index: int, node: Node, run: Run, **arguments: Any) -> tuple[HostTensor, ...]:
        BadLaunch.num_launches += 1
        results = run(**arguments)
        if BadLaunch.num_launches % 500 == 0:
            last = results[0][..., -1]
            results[0][..., -1] = np.nextafter(last, last.dtype.type(np.inf))
        return results


class StrayLaunch(HookedExecutable):
    """One launch in 500 writes a row too many."""

    def run(self) -> None:
        super().run()
        BadLaunch.num_launches += 1
        bound = self._memory.get(self._graph.outputs[0].name)
        if BadLaunch.num_launches % 500 == 0 and isinstance(bound, View):
            whole = bound.base.tensor  # type: ignore[attr-defined]
            whole[-1] = 0
