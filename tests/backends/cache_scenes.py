"""A layer's cache on a backend: its graph, steps to run it with, and caches full of noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samebits.backends.interface import Backend, Buffer, Executable
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of
from samebits.ops.kv_cases import empty_cache
from samebits.ops.paged import stored_elements
from samebits.ops.rope import rope_table

PAGES, KV_HEADS, GROUP, POSITIONS = 12, 2, 2, 128
FIELDS = ("pos_ids", "batch_indices", "positions", "qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_len")


@dataclass(frozen=True)
class Store:
    """How the caches of a test are stored."""

    k: str = "f16"
    v: str = "f16"
    head: int = 32
    page_size: int = 16
    order: str = "NHD"
    kind: str = "cache"

    def specs(self) -> dict[str, TensorSpec]:
        inner = (self.page_size, KV_HEADS) if self.order == "NHD" else (KV_HEADS, self.page_size)
        formats = {"k_cache": self.k, "v_cache": self.v}
        return {n: TensorSpec((PAGES, *inner, stored_elements(self.head, f)), f) for n, f in formats.items()}


def describe(x: object) -> str | None:
    if not isinstance(x, Store):
        return None
    return "-".join(map(str, (x.k, x.v, x.head, x.page_size, x.order, x.kind)))


def raw(x: HostTensor) -> bytes:
    return (x.data if isinstance(x, Packed) else x).tobytes()


def noise(spec: TensorSpec, name: str) -> HostTensor:
    """A cache of any bytes, as memory that was never written holds them."""
    cache = empty_cache(spec.format, spec.shape)
    data = cache.data if isinstance(cache, Packed) else cache
    data.view(np.uint8)[...] = Stream(name).integers(0, 256, data.view(np.uint8).shape)
    return cache


def layer(store: Store) -> Graph:
    """What a model's layer does with its cache."""
    b, head = OpBuilder(), store.head
    tokens, sequences = Sym("T", 64), Sym("B", 4)
    dims = (tokens, tokens, tokens, Sym("B", 4, plus=1), Sym("B", 4, plus=1), Sym("NI", PAGES), sequences)
    step = {name: b.input(name, TensorSpec((dim,), "i32")) for name, dim in zip(FIELDS, dims, strict=True)}
    q = b.input("q", TensorSpec((tokens, KV_HEADS * GROUP, head), "f32"))
    key, value = (b.input(n, TensorSpec((tokens, KV_HEADS, head), "f32")) for n in ("key", "value"))
    table = b.input("table", TensorSpec((POSITIONS, head // 2, 2), "f32"), "weight")
    caches = {name: b.input(name, spec, store.kind) for name, spec in store.specs().items()}
    where = {name: step[name] for name in FIELDS[4:]}
    cells = {name: step[name] for name in ("pos_ids", "batch_indices", "positions")}
    written = b.rope_and_append(key, value, table=table, layout=store.order, **cells, **caches, **where)
    views = dict(zip(("k_cache", "v_cache"), written, strict=True))
    out = b.paged_attention(q, qo_indptr=step["qo_indptr"], layout=store.order, **views, **where)
    return b.finish(out, *written)


def step_inputs(lengths: tuple[int, ...], new: tuple[int, ...], store: Store) -> dict[str, np.ndarray]:
    """The last `new` tokens of sequences of these lengths; page ids are handed out from the last one down."""
    counts = [-(-n // store.page_size) for n in lengths]
    starts = np.concatenate([[0], np.cumsum([4] * len(lengths))])
    pages = [np.arange(starts[b], starts[b] + c) for b, c in enumerate(counts)]
    positions = np.concatenate([np.arange(n - m, n) for n, m in zip(lengths, new, strict=True)])
    stream, total = Stream(f"step{lengths}"), sum(new)
    index = {
        "pos_ids": positions,
        "batch_indices": np.repeat(np.arange(len(lengths)), new),
        "positions": positions,
        "qo_indptr": np.concatenate([[0], np.cumsum(new)]),
        "kv_indptr": np.concatenate([[0], np.cumsum(counts)]),
        "kv_indices": PAGES - 1 - np.concatenate(pages),
        "kv_last_page_len": np.array([n - (c - 1) * store.page_size for n, c in zip(lengths, counts, strict=True)]),
    }
    return {
        **{name: array.astype(np.int32) for name, array in index.items()},
        "q": stream.child("q").normal((total, KV_HEADS * GROUP, store.head)),
        "key": stream.child("k").normal((total, KV_HEADS, store.head)),
        "value": stream.child("v").normal((total, KV_HEADS, store.head)),
        "table": rope_table(POSITIONS, store.head),
    }


def place(backend: Backend, host: HostTensor, layout: str = "row-major") -> Buffer:
    buffer = backend.alloc(spec_of(host), layout)
    backend.copy_in(buffer, host)
    return buffer


class Session:
    """The layer on a backend, its caches full of noise, in the layouts it asks for or row-major."""

    def __init__(self, backend: Backend, store: Store, private: bool) -> None:
        self.backend = backend
        self.executable: Executable = backend.compile(layer(store), Tier.PORTABLE)
        self.layouts = {}
        for name, spec in store.specs().items():
            self.layouts[name] = self.executable.layout(name) if private else "row-major"
            self.executable.bind(name, place(backend, noise(spec, name), self.layouts[name]))

    def run(self, inputs: dict[str, np.ndarray]) -> list[bytes]:
        for name, host in inputs.items():
            self.executable.bind(name, place(self.backend, host))
        sizes = {"T": len(inputs["positions"]), "B": len(inputs["kv_last_page_len"]), "NI": len(inputs["kv_indices"])}
        self.executable.prepare(sizes)
        self.executable.run()
        return [raw(self.backend.copy_out(self.executable.output(i))) for i in range(3)]
