"""Copies of pages and of slots on the device: graphs of their own over the model's caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from samebits.backends.interface import Backend, Buffer
from samebits.cache import PageCopy, SlotCopy
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph, Value
from samebits.ops.build import OpBuilder

MAX_COPIES = 256  # in one run of a graph; more go in several


def copy_graph(specs: Mapping[str, TensorSpec], states: Sequence[tuple[str, ...]], op: str) -> Graph:
    """Copies along the first axis of some states, given as the names of their tensors, keys first."""
    b, count = OpBuilder(), Sym("N", MAX_COPIES)
    ids = [b.input(name, TensorSpec((count,), "i32")) for name in ("sources", "targets")]
    outputs: list[Value] = []
    for tensors in states:
        values = [b.input(name, specs[name], kind="cache") for name in tensors]
        v_cache = {"v_cache": values[1]} if len(values) > 1 else {}
        copied = getattr(b, op)(values[0], *ids, **v_cache)
        outputs += copied if isinstance(copied, tuple) else (copied,)
    return b.finish(*outputs)


def page_graphs(specs: Mapping[str, TensorSpec], groups: Sequence[Sequence[tuple[str, ...]]]) -> dict[int, Graph]:
    """The copies of each group's pages, by the group's number; none where pages only name prefixes."""
    return {number: copy_graph(specs, states, "copy_kv_pages") for number, states in enumerate(groups) if states}


class CopyGraph:
    """One graph of copies over the model's caches."""

    def __init__(self, backend: Backend, tier: Tier, caches: Mapping[str, Buffer], graph: Graph) -> None:
        self._backend = backend
        self._executable = backend.compile(graph, tier)
        self._executable.compile_ahead(is_needed_first=False)
        for value in graph.inputs:
            if graph.kinds.get(value.name) == "cache":
                self._executable.bind(value.name, caches[value.name])

    def run(self, copies: Sequence[PageCopy] | Sequence[SlotCopy]) -> None:
        """Makes the copies, whose targets are no sources."""
        for start in range(0, len(copies), MAX_COPIES):
            part = copies[start : start + MAX_COPIES]
            for name, ids in (("sources", [c.source for c in part]), ("targets", [c.target for c in part])):
                buffer = self._backend.alloc(TensorSpec((len(part),), "i32"))
                self._backend.copy_in(buffer, np.array(ids, np.int32))
                self._executable.bind(name, buffer)
            self._executable.prepare({"N": len(part)})
            self._executable.run()


class PageCopier:
    """`groups`: the tensors of the states that share page tables, keys first, in the order of the groups."""

    def __init__(
        self,
        backend: Backend,
        tier: Tier,
        caches: Mapping[str, Buffer],
        groups: Sequence[Sequence[tuple[str, ...]]],
    ) -> None:
        graphs = page_graphs({name: buffer.spec for name, buffer in caches.items()}, groups)
        self._graphs = {number: CopyGraph(backend, tier, caches, graph) for number, graph in graphs.items()}

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Makes the copies, whose targets are no sources."""
        for number, graph in self._graphs.items():
            graph.run([c for c in copies if c.group == number])


class SlotCopier:
    """`tensors` of all states in slots, and those of them that are `resumable`."""

    def __init__(
        self,
        backend: Backend,
        tier: Tier,
        caches: Mapping[str, Buffer],
        tensors: Sequence[str],
        resumable: Sequence[str],
    ) -> None:
        specs = {name: buffer.spec for name, buffer in caches.items()}
        self._graphs = {
            resumable_only: CopyGraph(backend, tier, caches, copy_graph(specs, [(n,) for n in names], "copy_slots"))
            for resumable_only, names in ((False, tensors), (True, resumable))
            if names
        }

    def copy(self, copies: Sequence[SlotCopy]) -> None:
        """Makes the copies one after another."""
        for part in at_once(copies):
            if (graph := self._graphs.get(part[0].resumable_only)) is not None:
                graph.run(part)


def at_once(copies: Sequence[SlotCopy]) -> list[list[SlotCopy]]:
    """Copies that are to be made one after another in parts, each of one kind, that can be made all at once."""
    parts: list[list[SlotCopy]] = []
    read: set[int] = set()
    written: set[int] = set()
    for copy in copies:
        is_apart = copy.target in read or copy.target in written or copy.source in written
        if not parts or is_apart or parts[-1][0].resumable_only != copy.resumable_only:
            parts.append([])
            read, written = set(), set()
        parts[-1].append(copy)
        read.add(copy.source)
        written.add(copy.target)
    return parts
