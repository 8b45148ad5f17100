"""Paged key/value caches: their layouts, their page tables and the checks both need.

Layouts, by the rank of `k_cache` and the attr `layout` ("NHD" or "HND"):
  split    k_cache, v_cache [P, ps, H, D]     or [P, H, ps, D]
  unified  k_cache [P, 2, ps, H, D]           or [P, 2, H, ps, D], no v_cache: 0 is K, 1 is V
  MLA      k_cache [P, ps, D], no v_cache: one head whose values are the first v_dim elements of its keys
Quantized caches store a head in ceil(D / 32) blocks; the padding is zero.
A null table (no kv_indices) is the contiguous cache: page b is the whole of sequence b. A page may stand in a table
several times, and in several tables; only one that is written must be listed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, HostTensor, Packed, format_of
from samebits.ops.ragged import check_index_range, check_indptr
from samebits.ops.record import CACHES, INDEX, Attr, Input

LAYOUTS = ("NHD", "HND")
CACHE_DIMS = ("P I J Dk_stored", "P 2 I J Dk_stored", "P ps Dk_stored")


def layout_name(name: str) -> str | None:
    return None if name in LAYOUTS else "'NHD' or 'HND'"


LAYOUT = Attr("layout", str, "NHD", "order of slots and heads inside a page", layout_name)
K_CACHE = Input("k_cache", CACHE_DIMS, CACHES, "split, unified or MLA cache, see ops/paged.py", raw=True)
V_CACHE = Input("v_cache", "P I J Dv_stored", CACHES, "values of a split cache", optional=True, raw=True)
KV_INDPTR = Input(
    "kv_indptr", "B+1", INDEX, "pages of sequence b: kv_indices[kv_indptr[b] : kv_indptr[b+1]]", optional=True
)
KV_INDICES = Input("kv_indices", "NI", INDEX, "page ids in token order; if absent, page b is sequence b", optional=True)
KV_LAST = Input("kv_last_page_len", "B", INDEX, "tokens in the last page, 1 .. ps (0 for a sequence without pages)")


@dataclass(frozen=True)
class Cache:
    """Logical views [P, ps, H, D] of a cache in any layout; writing to them writes to the cache."""

    k: HostTensor
    v: HostTensor

    @property
    def num_pages(self) -> int:
        return int(self.k.shape[0])

    @property
    def page_size(self) -> int:
        return int(self.k.shape[1])

    @property
    def token_bytes(self) -> int:
        """What one token takes, keys and values; MLA values are part of the keys."""
        k, v = (x.data if isinstance(x, Packed) else x for x in (self.k, self.v))
        shared = np.shares_memory(k[:1], v[:1]) if k.ndim and k.shape[-1] > v.shape[-1] else False
        return sum(x.shape[2] * x.shape[3] * x.itemsize for x in ((k,) if shared else (k, v)))


def _to_nhd(cache: HostTensor, layout: str) -> HostTensor:
    if layout == "NHD":
        return cache
    if isinstance(cache, Packed):
        return Packed(cache.format, cache.data.swapaxes(1, 2), cache.scale)
    return cache.swapaxes(1, 2)


def stored_elements(head_size: int, fmt: str) -> int:
    """Elements a head takes in a cache of that format: its size, rounded up to whole blocks."""
    block_len = FORMATS[fmt].block_len
    return -(-head_size // block_len) * block_len


def stored_width(head_size: int, cache: HostTensor) -> int:
    """stored_elements for a cache at hand."""
    return stored_elements(head_size, format_of(cache).name)


def cache_views(
    where: str, k_cache: HostTensor, v_cache: HostTensor | None, layout: str, k_dim: int, v_dim: int
) -> Cache:
    """The cache as logical views; BadInput when its shape does not carry heads of k_dim and v_dim."""
    if v_cache is not None:
        if k_cache.ndim != 4:
            raise BadInput(
                where, "v_cache", f"a tensor beside k_cache of {k_cache.ndim} axes", "a split k_cache of 4 axes"
            )
        cache = Cache(_to_nhd(k_cache, layout), _to_nhd(v_cache, layout))
    elif k_cache.ndim == 5:
        cache = Cache(_to_nhd(k_cache[:, 0], layout), _to_nhd(k_cache[:, 1], layout))
    elif k_cache.ndim == 3:
        if v_dim > k_dim or isinstance(k_cache, Packed):
            raise BadInput(where, "k_cache", f"MLA cache, v_dim {v_dim}", f"f32, f16 or bf16 and v_dim at most {k_dim}")
        one_head = k_cache[:, :, None, :]
        cache = Cache(one_head, one_head[..., :v_dim])
    else:
        raise BadInput(where, "v_cache", "nothing", "values beside a split k_cache")
    for name, view, dim in (("k_cache", cache.k, k_dim), ("v_cache", cache.v, v_dim)):
        if view.shape[-1] != stored_width(dim, view):
            raise BadInput(
                where, name, f"heads of {view.shape[-1]}", f"heads of {stored_width(dim, view)} for size {dim}"
            )
    return cache


@dataclass(frozen=True)
class PageTable:
    """Which pages hold a sequence, in token order, and how many tokens it has."""

    page_ids: list[np.ndarray]  # int32 per sequence
    lengths: np.ndarray  # int64 [B], tokens

    def cells(self, sequence: int, positions: np.ndarray, page_size: int) -> tuple[np.ndarray, np.ndarray]:
        """(page, slot) of token positions of a sequence."""
        return self.page_ids[sequence][positions // page_size], positions % page_size


def kept(q_positions: np.ndarray, kv_len: int, causal: bool, window_left: int, custom: np.ndarray | None) -> np.ndarray:
    """Return which of kv_len positions each query looks at; bool [Tq, kv_len]. Queries sit at absolute positions."""
    kv = np.arange(kv_len)[None, :]
    q = q_positions[:, None]
    keep = np.ones((len(q_positions), kv_len), bool) if custom is None else custom.copy()
    if causal:
        keep &= kv <= q
    if window_left >= 0:
        keep &= kv >= q - window_left
    return keep


def page_table(
    where: str,
    kv_indptr: np.ndarray | None,
    kv_indices: np.ndarray | None,
    kv_last_page_len: np.ndarray,
    num_pages: int,
    page_size: int,
) -> PageTable:
    """The checked table. BadInput for a falling indptr, a page that does not exist, a length outside its page."""
    num_sequences = len(kv_last_page_len)
    if (kv_indptr is None) != (kv_indices is None):
        raise BadInput(where, "kv_indptr", "one of kv_indptr and kv_indices", "both, or neither for a contiguous cache")
    if kv_indptr is None or kv_indices is None:
        if num_sequences > num_pages:
            raise BadInput(where, "k_cache", f"{num_pages} pages", f"one per sequence: {num_sequences}")
        kv_indptr = np.arange(num_sequences + 1, dtype=np.int32)
        kv_indices = np.arange(num_sequences, dtype=np.int32)
        smallest = np.zeros(num_sequences, np.int64)
    else:
        check_indptr(where, "kv_indptr", kv_indptr, len(kv_indices))
        check_index_range(where, "kv_indices", kv_indices, num_pages)
        smallest = (np.diff(kv_indptr) > 0).astype(np.int64)
    page_ids = [kv_indices[i:j] for i, j in pairwise(kv_indptr)]
    page_counts = np.diff(kv_indptr).astype(np.int64)
    largest = np.where(page_counts > 0, page_size, 0)
    last = kv_last_page_len.astype(np.int64)
    wrong = (last < smallest) | (last > largest)
    if wrong.any():
        b = int(np.argmax(wrong))
        needed = f"{smallest[b]} .. {largest[b]} for {page_counts[b]} pages of {page_size}"
        raise BadInput(where, "kv_last_page_len", f"{last[b]} for sequence {b}", needed)
    lengths = np.where(page_counts > 0, page_size * (page_counts - 1) + last, 0)
    return PageTable(page_ids, lengths)
