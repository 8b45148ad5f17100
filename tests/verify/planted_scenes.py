"""Calls and short runs built by hand, from which the planted defects take their witnesses and twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from planted import defined
from planted_base import Arguments, Rows, Scene

from samebits.backends.one_op import one_node
from samebits.core.format import FORMATS, BlockFormat, HostTensor
from samebits.ops import OPS, bind
from samebits.ops.paged import stored_elements
from samebits.ops.rope import rope_table


def floats(*shape: int, seed: int = 0, fmt: str = "f32", size: float = 1.0) -> Any:
    """Bell-shaped values of that size, in any format."""
    x = (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)
    target = FORMATS[fmt]
    return target.pack(x) if isinstance(target, BlockFormat) else x.astype(target.dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def rows_of(x: np.ndarray) -> np.ndarray:
    """A result [..., K] as a view [rows, K]."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def call(op_name: str, outputs: float | None = None, threads: int = 1, **inputs: Any) -> Scene:
    """One call of an op."""
    bound = bind(OPS[op_name], **inputs)
    return Scene(one_node(bound.op, bound.specs, bound.attrs), (bound.tensors,), outputs, (threads,))


def repeated(scene: Scene, *later: dict[str, HostTensor | Rows], threads: tuple[int, ...] = (1,)) -> Scene:
    """The scene, with more runs in the same executable."""
    return Scene(scene.graph, (*scene.runs, *later), scene.outputs, threads)


def product(t: int, n: int, k: int, fmt: str = "f32", **more: Any) -> Scene:
    """gemm; `more` may hold a bias."""
    return call("gemm", x=floats(t, k), weight=floats(n, k, seed=1, fmt=fmt), **more)


def blocks(t: int, k: int, size: float = 1.0) -> Arguments:
    """Activations in int8 blocks."""
    codes, scales = defined("quantize_q8", {"x": floats(t, k, size=size)})
    return {"codes": codes, "scales": scales}


def rotary(positions: list[int], num_positions: int = 512, head: int = 8, rotary_dim: int = 8, **more: Any) -> Scene:
    """rope of one head at these positions."""
    x = more.pop("x", floats(len(positions), 1, head))
    return call("rope", x=x, pos_ids=ints(*positions), table=rope_table(num_positions, rotary_dim), **more)


def paged(lengths: tuple[int, ...], page_size: int = 16, pages: list[list[int]] | None = None) -> Arguments:
    """The page table of sequences; their pages one after another unless `pages` says otherwise."""
    counts = [-(-n // page_size) for n in lengths]
    edges = np.cumsum([0, *counts])
    listed = np.arange(edges[-1]) if pages is None else np.concatenate([np.array(p, np.int64) for p in pages])
    last = [n - (c - 1) * page_size if c else 0 for n, c in zip(lengths, counts, strict=True)]
    return {"kv_indptr": edges.astype(np.int32), "kv_indices": listed.astype(np.int32), "kv_last_page_len": ints(*last)}


def caches(num_pages: int, page_size: int, heads: int, head: int, v_dim: int, k: str, v: str) -> Arguments:
    """A split cache in NHD, its keys in format `k` and its values in format `v`."""
    shapes = {"k_cache": (head, k), "v_cache": (v_dim, v)}
    return {
        name: floats(num_pages, page_size, heads, stored_elements(size, fmt), seed=seed, fmt=fmt)
        for seed, (name, (size, fmt)) in enumerate(shapes.items(), start=1)
    }


def attention(lengths: tuple[int, ...], queries: tuple[int, ...] | None = None, **more: Any) -> Scene:
    """paged_attention over a split cache in NHD; `more` holds sizes, formats, and further arguments of the op."""
    heads, kv_heads, head = more.pop("heads", 1), more.pop("kv_heads", 1), more.pop("head", 8)
    page_size, k, v = more.pop("page_size", 16), more.pop("k", "f32"), more.pop("v", "f32")
    counts = queries or (1,) * len(lengths)
    table = paged(lengths, page_size, more.pop("pages", None))
    num_pages = max([more.pop("num_pages", 1), *(table["kv_indices"] + 1)])
    tensors = caches(num_pages, page_size, kv_heads, head, more.get("v_dim") or head, k, v)
    q = floats(sum(counts), heads, head, fmt=more.pop("q", "f32"))
    qo_indptr = np.cumsum([0, *counts]).astype(np.int32)
    return call("paged_attention", **{"q": q, "qo_indptr": qo_indptr, **table, **tensors, **more})


def append(positions: list[int], op_name: str = "append_paged_kv_cache", **more: Any) -> Scene:
    """Tokens into the cache of a sequence that ends with the last of them; `op_name` may name a fused append."""
    head = more.pop("head", 8)
    table = paged((1 + max(positions),))
    tensors = caches(len(table["kv_indices"]), 16, 1, head, head, more.pop("k", "f32"), more.pop("v", "f32"))
    new = {"key": floats(len(positions), 1, head, seed=3), "value": floats(len(positions), 1, head, seed=4)}
    cells = {"batch_indices": np.zeros(len(positions), np.int32), "positions": ints(*positions), **table, **tensors}
    return call(op_name, **{**new, **cells, **more})
