"""Copies of pages on the device: a graph of its own over the caches of all layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from samebits.backends.interface import Backend, Buffer
from samebits.cache import PageCopy
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.ops.build import OpBuilder

MAX_COPIES = 256  # in one run of the graph; more go in several


class PageCopier:
    """`caches` are layers.N.k_cache and layers.N.v_cache, as the model's graph names them."""

    def __init__(self, backend: Backend, tier: Tier, caches: Mapping[str, Buffer]) -> None:
        b, count = OpBuilder(), Sym("N", MAX_COPIES)
        pages = {name: b.input(name, TensorSpec((count,), "i32")) for name in ("sources", "targets")}
        outputs = []
        for name in caches:
            if name.endswith(".k_cache"):
                pair = [b.input(n, caches[n].spec, kind="cache") for n in (name, name.replace(".k_", ".v_"))]
                outputs += b.copy_kv_pages(pair[0], pages["sources"], pages["targets"], v_cache=pair[1])
        self._backend, self._executable = backend, backend.compile(b.finish(*outputs), tier)
        for name, buffer in caches.items():
            self._executable.bind(name, buffer)

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Makes the copies, whose targets are no sources."""
        for start in range(0, len(copies), MAX_COPIES):
            part = copies[start : start + MAX_COPIES]
            for name, ids in (("sources", [c.source for c in part]), ("targets", [c.target for c in part])):
                buffer = self._backend.alloc(TensorSpec((len(part),), "i32"))
                self._backend.copy_in(buffer, np.array(ids, np.int32))
                self._executable.bind(name, buffer)
            self._executable.prepare({"N": len(part)})
            self._executable.run()
