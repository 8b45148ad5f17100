"""What `samebits bench ops` times on a GPU: the shapes that kernels are compared on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from samebits.core.format import BLOCK, spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.ops.rope import rope_table

HEADS, KV_HEADS, HEAD, PAGE = 32, 8, 128, 16
HIDDEN, FFN = 4096, 14336
LATENT_HEADS, LATENT_KEY, LATENT_VALUE = 128, 576, 512  # DeepSeek-V3's
ROTATION = 4  # input sets hold so many times the last cache
Host = Callable[[int], Any]  # from the number of an input set to a host tensor
Sizes = Iterable[tuple[int, int]]  # (sequences, tokens of each)
DECODES: Sizes = ((1, 512), (1, 4096), (16, 512), (64, 512), (16, 4096), (64, 4096), (256, 1024))
PREFILLS: Sizes = ((1, 2048), (1, 8192), (16, 512))
LATENTS: Sizes = ((1, 4096), (16, 4096), (64, 4096))


@dataclass(frozen=True)
class GpuCase:
    """One op at one size. `device` inputs are made there, `host` ones here; `num_bytes` move at the least."""

    op: str
    name: str
    device: Mapping[str, TensorSpec]
    num_bytes: int
    num_operations: int = 0
    host: Mapping[str, Host] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    weight: str = ""  # a format: `weight` [N, K] of it is made here and packed as its kernel likes
    shape: tuple[int, int] = (0, 0)
    peer: str = ""  # what a library calls the same work

    @property
    def label(self) -> str:
        return f"{self.op}/{self.name}"


def _always(x: np.ndarray, number: int) -> np.ndarray:
    return x


def _tables(queries: tuple[int, ...], lengths: tuple[int, ...], num_pages: int) -> dict[str, Host]:
    """Page tables of scattered pages; every input set has its own part of the cache."""
    pages = np.array([-(-n // PAGE) for n in lengths])
    indptr = np.concatenate([[0], np.cumsum(pages)]).astype(np.int32)

    def indices(number: int) -> np.ndarray:
        order = np.random.default_rng(0).permutation(num_pages)
        first = number * int(indptr[-1]) % (num_pages - int(indptr[-1]) + 1)
        return order[first : first + indptr[-1]].astype(np.int32)

    fixed = {
        "qo_indptr": np.concatenate([[0], np.cumsum(queries)]).astype(np.int32),
        "kv_indptr": indptr,
        "kv_last_page_len": np.array([n - (p - 1) * PAGE for n, p in zip(lengths, pages, strict=True)], np.int32),
    }
    return {"kv_indices": indices, **{name: partial(_always, x) for name, x in fixed.items()}}


def attention(queries: tuple[int, ...], lengths: tuple[int, ...], name: str, cache_bytes: int) -> GpuCase:
    """Paged attention in bf16, causal."""
    pages = sum(-(-n // PAGE) for n in lengths)
    page_bytes = PAGE * KV_HEADS * HEAD * 2
    num_pages = max(pages, -(-ROTATION * cache_bytes // (2 * page_bytes)))
    cache = TensorSpec((num_pages, PAGE, KV_HEADS, HEAD), "bf16")
    q = TensorSpec((sum(queries), HEADS, HEAD), "bf16")
    seen = sum(n * (2 * length - n + 1) / 2 for n, length in zip(queries, lengths, strict=True))
    return GpuCase(
        "paged_attention",
        name,
        {"q": q, "k_cache": cache, "v_cache": cache},
        2 * sum(lengths) * KV_HEADS * HEAD * 2 + 2 * spec_bytes(q),
        int(4 * seen * HEADS * HEAD),
        _tables(queries, lengths, num_pages),
        {"v_dim": HEAD},
        peer="attention",
    )


def latent_attention(batch: int, length: int, cache_bytes: int) -> GpuCase:
    """A token each of `batch` sequences, over a latent cache in bf16 that all heads share."""
    lengths = (length,) * batch
    pages = sum(-(-n // PAGE) for n in lengths)
    num_pages = max(pages, -(-ROTATION * cache_bytes // (PAGE * LATENT_KEY * 2)))
    cache = TensorSpec((num_pages, PAGE, LATENT_KEY), "bf16")
    q = TensorSpec((batch, LATENT_HEADS, LATENT_KEY), "bf16")
    return GpuCase(
        "paged_attention",
        f"latent decode, batch {batch}, context {length}",
        {"q": q, "k_cache": cache},
        sum(lengths) * LATENT_KEY * 2 + 2 * spec_bytes(q),
        2 * sum(lengths) * LATENT_HEADS * (LATENT_KEY + LATENT_VALUE),
        _tables((1,) * batch, lengths, num_pages),
        {"v_dim": LATENT_VALUE},
    )


def product(fmt: str, num_tokens: int, shape: tuple[int, int] = (FFN, HIDDEN)) -> GpuCase:
    """x [T, K] times a weight [N, K]; against blocks x is in int8 blocks, as models' graphs have it."""
    num_rows, width = shape
    inputs = {"x": TensorSpec((num_tokens, width), "bf16")}
    if fmt != "bf16":
        scales = TensorSpec((num_tokens, width // BLOCK), "f32")
        inputs = {"codes": TensorSpec((num_tokens, width), "i8"), "scales": scales}
    moved = spec_bytes(TensorSpec(shape, fmt)) + sum(map(spec_bytes, inputs.values())) + num_tokens * num_rows * 4
    name = f"{fmt} {num_rows}x{width}, {num_tokens} tokens"
    operations, peer = 2 * num_tokens * num_rows * width, "matmul" if fmt == "bf16" else ""
    op = "gemm" if fmt == "bf16" else "gemm_q8"
    return GpuCase(op, name, inputs, moved, operations, weight=fmt, shape=shape, peer=peer)


def _rows(op: str, name: str, num_bytes: int, inputs: Mapping[str, TensorSpec], **kw: Any) -> GpuCase:
    return GpuCase(op, name, inputs, num_bytes, **kw)


def attention_cases(
    cache_bytes: int, decodes: Sizes = DECODES, prefills: Sizes = PREFILLS, latents: Sizes = LATENTS
) -> Iterator[GpuCase]:
    """Attention alone, at these sizes."""
    for batch, length in decodes:
        yield attention((1,) * batch, (length,) * batch, f"decode, batch {batch}, context {length}", cache_bytes)
    for batch, length in prefills:
        yield attention((length,) * batch, (length,) * batch, f"prefill, {batch} x {length}", cache_bytes)
    for batch, length in latents:
        yield latent_attention(batch, length, cache_bytes)


def gpu_cases(cache_bytes: int) -> Iterator[GpuCase]:
    """Attention, products, and what lies between them."""
    yield from attention_cases(cache_bytes)
    for tokens in (1, 16, 64, 256, 1024, 8192):
        yield product("bf16", tokens)
    for fmt in ("q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "nvfp4", "mxfp4", "q2_k", "q3_k", "iq4_xs"):
        for tokens in (1, 8, 16, 64, 4096):
            yield product(fmt, tokens)
    many = 8192
    x = TensorSpec((many, HIDDEN), "bf16")
    gated = TensorSpec((many, 2 * FFN), "bf16")
    heads = TensorSpec((many, HEADS, HEAD), "bf16")
    row = TensorSpec((HIDDEN,), "bf16")
    yield _rows("rms_norm", f"{many}x{HIDDEN}", 2 * spec_bytes(x), {"x": x, "weight": row}, peer="norm")
    yield _rows("silu_and_mul", f"{many}x{2 * FFN}", spec_bytes(gated) * 3 // 2, {"x": gated}, peer="silu")
    table, positions = rope_table(many, HEAD), np.arange(many, dtype=np.int32)
    host: dict[str, Host] = {"pos_ids": partial(_always, positions), "table": partial(_always, table)}
    yield _rows("rope", f"{many} tokens", 2 * spec_bytes(heads), {"x": heads}, host=host)
    logits = TensorSpec((64, 128256), "f32")
    yield _rows("top_k_mask_logits", "64x128256", 2 * spec_bytes(logits), {"x": logits}, attrs={"k": 50}, peer="top_k")
