"""append_paged_kv_cache: new keys and values into their cells, in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.ops.kv_cases import append_case, append_inputs
from samebits.ops.kv_codec import encode_rows
from samebits.ops.kv_equivalents import append_equivalents
from samebits.ops.kv_spaces import APPEND_SPACE
from samebits.ops.paged import (
    K_CACHE,
    KV_INDICES,
    KV_INDPTR,
    KV_LAST,
    LAYOUT,
    V_CACHE,
    Cache,
    cache_views,
    page_table,
)
from samebits.ops.ragged import check_index_range
from samebits.ops.record import CACHES, FLOATS, INDEX, Input, Result, define_op

OP = "append_paged_kv_cache"


def _views(key: np.ndarray, value: np.ndarray | None, k_cache: HostTensor, v_cache: Any, layout: str) -> Cache:
    v_dim = key.shape[-1] if value is None else value.shape[-1]
    if (value is None) != (k_cache.ndim == 3):
        raise BadInput(OP, "value", "a tensor" if value is not None else "nothing", "one, except with an MLA cache")
    cache = cache_views(OP, k_cache, v_cache, layout, key.shape[-1], v_dim)
    if v_cache is not None and np.shares_memory(_storage(k_cache), _storage(v_cache)):
        raise BadInput(OP, "v_cache", "memory that k_cache holds too", "a cache of its own")
    if cache.k.shape[2] != key.shape[1]:
        raise BadInput(OP, "key", f"{key.shape[1]} heads", f"the cache's {cache.k.shape[2]}")
    return cache


def _cells(
    cache: Cache,
    batch_indices: np.ndarray,
    positions: np.ndarray,
    kv_indptr: np.ndarray | None,
    kv_indices: np.ndarray | None,
    kv_last_page_len: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(page, slot) of every token; BadInput for a place outside its sequence or a page that others see."""
    table = page_table(OP, kv_indptr, kv_indices, kv_last_page_len, cache.num_pages, cache.page_size)
    check_index_range(OP, "batch_indices", batch_indices, len(table.lengths))
    outside = (positions < 0) | (positions >= table.lengths[batch_indices])
    if outside.any():
        t = int(np.argmax(outside))
        length = table.lengths[batch_indices[t]]
        raise BadInput(
            OP, "positions", f"{positions[t]} for token {t}", f"0 .. {length - 1} in sequence {batch_indices[t]}"
        )
    pages, slots = np.zeros(len(positions), np.int64), np.zeros(len(positions), np.int64)
    for b in np.unique(batch_indices):
        here = batch_indices == b
        pages[here], slots[here] = table.cells(int(b), positions[here], cache.page_size)
    owners = np.bincount(np.concatenate([*table.page_ids, np.zeros(0, np.int32)]).astype(np.int64), minlength=1)
    if (owners[pages] > 1).any():
        raise BadInput(
            OP, "kv_indices", f"page {pages[np.argmax(owners[pages] > 1)]} listed twice", "a page of its own to write"
        )
    cells, counts = np.unique(pages * cache.page_size + slots, return_counts=True)
    if (counts > 1).any():
        page, slot = divmod(int(cells[np.argmax(counts > 1)]), cache.page_size)
        raise BadInput(OP, "positions", f"page {page} slot {slot} twice", "one token a cell")
    return pages, slots


def _check(
    key: np.ndarray,
    value: np.ndarray | None,
    batch_indices: np.ndarray,
    positions: np.ndarray,
    k_cache: HostTensor,
    kv_last_page_len: np.ndarray,
    v_cache: HostTensor | None,
    kv_indptr: np.ndarray | None,
    kv_indices: np.ndarray | None,
    layout: str,
) -> None:
    cache = _views(key, value, k_cache, v_cache, layout)
    _cells(cache, batch_indices, positions, kv_indptr, kv_indices, kv_last_page_len)
    encode_rows(key, cache.k, OP, "key")
    if value is not None:
        encode_rows(value, cache.v, OP, "value")


def _store(cache: HostTensor, pages: np.ndarray, slots: np.ndarray, rows: np.ndarray) -> None:
    _storage(cache)[pages, slots] = rows


def _storage(cache: HostTensor) -> np.ndarray:
    return cache.data if isinstance(cache, Packed) else cache


@define_op(
    inputs=[
        Input("key", "T Hkv D", FLOATS, "new keys, after rope"),
        Input("value", "T Hkv Dv", FLOATS, "new values; absent for an MLA cache", optional=True),
        Input("batch_indices", "T", INDEX, "sequence of each token"),
        Input("positions", "T", INDEX, "position of each token in its sequence"),
        K_CACHE,
        KV_LAST,
        V_CACHE,
        KV_INDPTR,
        KV_INDICES,
    ],
    attrs=[LAYOUT],
    results=[
        Result("k_cache", "", "=k_cache", alias_of="k_cache"),
        Result("v_cache", "", "=v_cache", alias_of="v_cache"),
    ],
    freedom="a code beyond a tie",
    cases=lambda: [
        *(append_case(f"{k}-{v}", k=k, v=v) for k, v in zip(CACHES, (*CACHES[1:], CACHES[0]), strict=True)),
        append_case("hnd", layout="HND"),
        append_case("unified", kind="unified"),
        append_case("unified-hnd-q8_0", kind="unified", layout="HND", k="q8_0", v="q8_0"),
        append_case("mla", kind="mla", heads=1, head=576),
        append_case("head-80-q8_0", head=80, k="q8_0", v="q4_0"),
        append_case("contiguous", table=False),
        append_case("page-edge", lengths=(17, 16, 15), new=(3, 2, 1)),
        append_case("no-tokens", lengths=(4,), new=(0,)),
        append_case("paged-benchmark", heads=32, head=128, lengths=(512,) * 16, new=(1,) * 16, full=True),
        append_case("llama-7b", heads=32, head=128, lengths=(47, 213, 891), new=(47, 1, 128), full=True),
    ],
    invariant_axes=("T",),
    check=_check,
    make_inputs=append_inputs,
    equivalents=append_equivalents,
    cache_bytes=lambda key, value, k_cache, v_cache, layout, **_: (
        len(key) * _views(key, value, k_cache, v_cache, layout).token_bytes
    ),
    operations=lambda key, value, **_: key.size + (0 if value is None else value.size),
    space=lambda: APPEND_SPACE,
    smallest=-123,
)
def append_paged_kv_cache(
    key: np.ndarray,
    value: np.ndarray | None,
    batch_indices: np.ndarray,
    positions: np.ndarray,
    k_cache: HostTensor,
    kv_last_page_len: np.ndarray,
    v_cache: HostTensor | None = None,
    kv_indptr: np.ndarray | None = None,
    kv_indices: np.ndarray | None = None,
    *,
    layout: str = "NHD",
) -> tuple[HostTensor, ...]:
    """cache[page(position), slot(position)] = the key and value in the cache's format, in place."""
    cache = _views(key, value, k_cache, v_cache, layout)
    pages, slots = _cells(cache, batch_indices, positions, kv_indptr, kv_indices, kv_last_page_len)
    key_rows = encode_rows(key, cache.k, OP, "key")
    value_rows = None if value is None else encode_rows(value, cache.v, OP, "value")
    _store(cache.k, pages, slots, key_rows)
    if value_rows is not None:
        _store(cache.v, pages, slots, value_rows)
    return (k_cache,) if v_cache is None else (k_cache, v_cache)
