"""append_paged_kv_cache and paged_attention on an f16 cache, split or unified, NHD or HND; copy_kv_pages on any.

A cell of the cache is a row number, so every arrangement is one line of arithmetic. A query reads exactly the
positions it sees: a mask is a loop bound, and what lies in other cells, NaN included, is never touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits_toy import device as dev
from samebits_toy.memory import Window, rows_in

F = np.float32


@dataclass(frozen=True)
class Cache:
    """K (part 0) and V (part 1) of a paged cache: split into two windows, or unified in one of five axes."""

    k: Window
    v: Window | None
    layout: str

    @property
    def page_size(self) -> int:
        return self.k.shape[-3 if self.layout == "NHD" else -2]

    def rows(self, part: int, pages: np.ndarray, slots: np.ndarray) -> tuple[Window, np.ndarray]:
        """The window that holds a part, and the row numbers [n, heads] of these cells in it."""
        heads = self.k.shape[-2 if self.layout == "NHD" else -3]
        unit = pages if self.v is not None else pages * 2 + part
        h = np.arange(heads)
        if self.layout == "NHD":
            rows = (unit * self.page_size + slots)[:, None] * heads + h
        else:
            rows = (unit[:, None] * heads + h) * self.page_size + slots[:, None]
        return self.v if part and self.v is not None else self.k, rows


@dataclass(frozen=True)
class Pages:
    """The page table on the controller. Without indices, page b is all of sequence b."""

    indptr: np.ndarray
    ids: np.ndarray
    last: np.ndarray

    @staticmethod
    def read(indptr: Window | None, indices: Window | None, last: Window) -> Pages:
        count = np.arange(last.num_rows + 1)
        if indptr is None or indices is None:
            return Pages(count, count[:-1], last.vector())
        return Pages(indptr.vector(), indices.vector(), last.vector())

    def length(self, sequence: int, page_size: int) -> int:
        """Whole pages and what is in the last; a sequence without pages has no tokens."""
        num_pages = int(self.indptr[sequence + 1] - self.indptr[sequence])
        return page_size * (num_pages - 1) + int(self.last[sequence]) if num_pages else 0

    def cells(self, sequence: np.ndarray, positions: np.ndarray, page_size: int) -> tuple[np.ndarray, np.ndarray]:
        """(page, slot) of token positions."""
        return self.ids[self.indptr[sequence] + positions // page_size].astype(np.int64), positions % page_size


def f16_cache(call: OpCall) -> str | None:
    k, v = call.inputs["k_cache"], call.inputs.get("v_cache")
    if len(k.shape) == 3:
        return "toy-tiles has no MLA cache"
    formats = {k.format, v.format if v else k.format}
    return None if formats == {"f16"} else f"toy-tiles caches are f16, not {' and '.join(sorted(formats - {'f16'}))}"


@dev.table.implements("append_paged_kv_cache", tier=Tier.PORTABLE, when=f16_cache)
def append_paged_kv_cache(
    key: Window,
    value: Window,
    batch_indices: Window,
    positions: Window,
    k_cache: Window,
    kv_last_page_len: Window,
    v_cache: Window | None = None,
    kv_indptr: Window | None = None,
    kv_indices: Window | None = None,
    *,
    layout: str,
) -> tuple[Window, ...]:
    """Writes in place and returns the caches: a result that aliases an input is that input."""
    cache = Cache(k_cache, v_cache, layout)
    pages = Pages.read(kv_indptr, kv_indices, kv_last_page_len)
    cells = pages.cells(batch_indices.vector(), positions.vector(), cache.page_size)
    for part, new in enumerate((key, value)):
        target, rows = cache.rows(part, *cells)
        lanes = dev.unpack(new, np.arange(new.num_rows))
        target.scatter(rows.reshape(-1), dev.rounded(lanes, "f16").astype(target.buffer.dtype))
    return (k_cache,) if v_cache is None else (k_cache, v_cache)


@dev.table.implements("copy_kv_pages", tier=Tier.PORTABLE)
def copy_kv_pages(
    k_cache: Window, sources: Window, targets: Window, v_cache: Window | None = None
) -> tuple[Window, ...]:
    """Whole pages are consecutive rows: they are copied as they are stored, in any format and layout."""
    caches = (k_cache,) if v_cache is None else (k_cache, v_cache)
    for cache in caches:
        rows_per_page = rows_in((1, *cache.shape[1:]))
        read, written = (
            (pages.vector().astype(np.int64)[:, None] * rows_per_page + np.arange(rows_per_page)).reshape(-1)
            for pages in (sources, targets)
        )
        cache.scatter(written, cache.gather(read))
    return caches


def plain_attention(call: OpCall) -> str | None:
    attrs = call.attrs
    asked = {name: name in call.inputs for name in ("alibi_slopes", "sinks", "custom_mask")}
    asked |= {"window_left": attrs["window_left"] >= 0, "logits_soft_cap": attrs["logits_soft_cap"] != 0}
    asked["return_lse"] = attrs["return_lse"]
    extras = [name for name, is_asked in asked.items() if is_asked]
    return f"toy-tiles attention has no {', '.join(extras)}" if extras else f16_cache(call)


@dev.table.implements("paged_attention", tier=Tier.PORTABLE, when=plain_attention)
def paged_attention(
    q: Window,
    k_cache: Window,
    qo_indptr: Window,
    kv_last_page_len: Window,
    v_cache: Window | None = None,
    kv_indptr: Window | None = None,
    kv_indices: Window | None = None,
    alibi_slopes: Window | None = None,
    sinks: Window | None = None,
    custom_mask: Window | None = None,
    *,
    layout: str,
    causal: bool,
    sm_scale: float | None,
    window_left: int,
    logits_soft_cap: float,
    v_dim: int,
    return_lse: bool,
) -> tuple[np.ndarray]:
    num_tokens, num_heads, head_size = q.shape
    cache, pages = Cache(k_cache, v_cache, layout), Pages.read(kv_indptr, kv_indices, kv_last_page_len)
    scale = F(1.0 / math.sqrt(head_size)) if sm_scale is None else F(sm_scale)
    ends = qo_indptr.vector()
    out = np.zeros((num_tokens, num_heads, v_dim or head_size), F)
    for b in range(len(ends) - 1):
        length = pages.length(b, cache.page_size)
        k, v = (head_rows(cache, part, pages, b, length) for part in (0, 1))
        for token in range(ends[b], ends[b + 1]):
            # bottom right: the last query sees everything, the one before it one position less
            seen = length - (ends[b + 1] - 1 - token) if causal else length
            query = dev.unpack(q, token * num_heads + np.arange(num_heads))
            out[token] = attend(dev.operand(query, "f16"), k[:seen], v[:seen], scale)
    return (out,)


def head_rows(cache: Cache, part: int, pages: Pages, sequence: int, length: int) -> np.ndarray:
    """All keys or values of a sequence, through the page table: float32 [length, KV heads, size]."""
    cells = pages.cells(np.full(length, sequence), np.arange(length), cache.page_size)
    window, rows = cache.rows(part, *cells)
    return dev.unpack(window, rows.reshape(-1)).reshape(*rows.shape, window.shape[-1])


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: np.float32) -> np.ndarray:
    """One token, all heads at once: q [Hq, D], k [n, Hkv, D], v [n, Hkv, Dv] to [Hq, Dv]; zeros if it sees nothing."""
    group = len(q) // k.shape[1]
    keys, values = (np.repeat(x, group, axis=1) for x in (k, v))  # query head h reads KV head h // group
    if not len(k):
        return np.zeros((len(q), v.shape[-1]), F)
    by_element = np.moveaxis(keys, -1, 0)
    scores = dev.head(q.shape[1], keys.shape[:2], lambda lanes, d: dev.fma(q.T[d, None, :], by_element[d], lanes))
    s = dev.mul(scores, scale)
    p = dev.exp(s - s.max(axis=0))
    total = dev.stream(len(p), p.shape[1:], lambda lanes, i: dev.add(lanes, p[i]))
    weights = dev.rounded(p, "f16")
    summed = dev.stream(len(p), values.shape[1:], lambda lanes, i: dev.fma(weights[i, :, None], values[i], lanes))
    return dev.mul(summed, dev.recip(total)[:, None])
