"""Copies of pages on the device: for each group of layers a graph of its own over their caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from samebits.backends.interface import Backend, Buffer, Executable
from samebits.cache import PageCopy
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Value
from samebits.ops.build import OpBuilder

MAX_COPIES = 256  # in one run of the graph; more go in several


class PageCopier:
    """`groups`: the tensors of the states that share page tables, keys first, in the order of the groups."""

    def __init__(
        self,
        backend: Backend,
        tier: Tier,
        caches: Mapping[str, Buffer],
        groups: Sequence[Sequence[tuple[str, ...]]],
    ) -> None:
        self._backend = backend
        self._executables = [self._compile(tier, caches, states) for states in groups]

    def _compile(self, tier: Tier, caches: Mapping[str, Buffer], states: Sequence[tuple[str, ...]]) -> Executable:
        b, count = OpBuilder(), Sym("N", MAX_COPIES)
        pages = {name: b.input(name, TensorSpec((count,), "i32")) for name in ("sources", "targets")}
        outputs: list[Value] = []
        for tensors in states:
            values = [b.input(name, caches[name].spec, kind="cache") for name in tensors]
            v_cache = {"v_cache": values[1]} if len(values) > 1 else {}
            copied = b.copy_kv_pages(values[0], pages["sources"], pages["targets"], **v_cache)
            outputs += copied if isinstance(copied, tuple) else (copied,)
        executable = self._backend.compile(b.finish(*outputs), tier)
        for name in (name for tensors in states for name in tensors):
            executable.bind(name, caches[name])
        return executable

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Makes the copies, whose targets are no sources."""
        for number, executable in enumerate(self._executables):
            own = [c for c in copies if c.group == number]
            for start in range(0, len(own), MAX_COPIES):
                self._run(executable, own[start : start + MAX_COPIES])

    def _run(self, executable: Executable, part: Sequence[PageCopy]) -> None:
        for name, ids in (("sources", [c.source for c in part]), ("targets", [c.target for c in part])):
            buffer = self._backend.alloc(TensorSpec((len(part),), "i32"))
            self._backend.copy_in(buffer, np.array(ids, np.int32))
            executable.bind(name, buffer)
        executable.prepare({"N": len(part)})
        executable.run()
