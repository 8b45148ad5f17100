"""append_paged_kv_cache and rope_and_append: one launch for keys and values."""

from __future__ import annotations

from typing import TypeAlias

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.caches.cells import cell_of, store_heads
from samebits.kernels.triton.lib.cache_views import cache_views
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.lib.tensors import Blocks
from samebits.kernels.triton.rows.rope import heads_of, rope_heads, table_row

Cache: TypeAlias = torch.Tensor | Blocks


@triton.jit(do_not_specialize=["num_positions", "num_sequences", "num_entries", "num_pages"])
def append_kernel(
    query_ptr, rotated_ptr, key_ptr, value_ptr, pos_ids_ptr, table_ptr, batch_ptr, positions_ptr, last_ptr, indptr_ptr,
    indices_ptr, k_ptr, v_ptr, fault_ptr, HQ, H, num_positions, num_sequences, num_entries, num_pages, page_size,
    query_token, query_head, key_token, key_head, value_token, value_head,
    k_page, k_slot, k_head, v_page, v_slot, v_head,
    D: tl.constexpr, DV: tl.constexpr, BLOCKS: tl.constexpr, V_BLOCKS: tl.constexpr, R: tl.constexpr,
    INTERLEAVE: tl.constexpr, HEADS: tl.constexpr, K_FORMAT: tl.constexpr, V_FORMAT: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """A program does HEADS heads of one token: of its query, then of its key, then of its value."""
    query_parts, parts = 0, tl.cdiv(H, HEADS)
    if query_ptr is not None:
        query_parts = tl.cdiv(HQ, HEADS)
    token_parts = query_parts + parts if value_ptr is None else query_parts + 2 * parts
    token, part = (tl.program_id(0) // token_parts).to(tl.int64), tl.program_id(0) % token_parts - query_parts
    row_ptr, turns = table_ptr, False
    if R > 0:
        row_ptr, turns = table_row(pos_ids_ptr, token, table_ptr, num_positions, fault_ptr, R)
    if part < 0:
        if query_ptr is not None:
            wait_for_previous(CHAINED)
            rope_heads(
                query_ptr, rotated_ptr, token, part + query_parts, HQ, query_token, query_head, row_ptr, turns,
                D, BLOCKS * 32, R, INTERLEAVE, HEADS,
            )  # fmt: skip
    else:
        page, slot, found = cell_of(
            token, batch_ptr, positions_ptr, last_ptr, indptr_ptr, indices_ptr, fault_ptr, num_sequences, num_entries,
            num_pages, page_size,
        )  # fmt: skip
        wait_for_previous(CHAINED)
        if part < parts:
            store_heads(
                key_ptr, token, part, H, key_token, key_head, row_ptr, turns, k_ptr, page, slot, found,
                k_page, k_slot, k_head, fault_ptr, D, BLOCKS, R, INTERLEAVE, HEADS, K_FORMAT,
            )  # fmt: skip
        elif value_ptr is not None:
            store_heads(
                value_ptr, token, part - parts, H, value_token, value_head, row_ptr, turns, v_ptr, page, slot, found,
                v_page, v_slot, v_head, fault_ptr, DV, V_BLOCKS, 0, INTERLEAVE, HEADS, V_FORMAT,
            )  # fmt: skip


def _last_dense(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _blocks(width: int) -> int:
    return power_of_two(cdiv(width, 32))


def launch_append(
    key: torch.Tensor, value: torch.Tensor | None, batch_indices: torch.Tensor, positions: torch.Tensor,
    k_cache: Cache, kv_last_page_len: torch.Tensor, v_cache: Cache | None, kv_indptr: torch.Tensor | None,
    kv_indices: torch.Tensor | None, layout: str, pos_ids: torch.Tensor | None = None,
    table: torch.Tensor | None = None, interleave: bool = False, query: torch.Tensor | None = None,
) -> torch.Tensor | None:  # fmt: skip
    """Stores the keys, turned where there is a table, and values; returns the query turned, where there is one."""
    rotated = None if query is None else torch.empty(query.shape, dtype=query.dtype, device=query.device)
    num_tokens, num_heads, head_size = key.shape
    if num_tokens == 0:
        return rotated
    k, v = cache_views(k_cache, v_cache, layout)
    key, value, query = (None if x is None else _last_dense(x) for x in (key, value, query))
    table = None if table is None else table.contiguous()  # a graph may make it of columns of a wider tensor
    v_size = head_size if value is None else value.shape[2]
    heads = heads_of(num_heads if query is None else query.shape[1], max(head_size, v_size))
    parts = cdiv(num_heads, heads) * (1 if value is None else 2)
    parts += 0 if query is None else cdiv(query.shape[1], heads)
    append_kernel[(num_tokens * parts,)](
        query, rotated, key, value, pos_ids, table, batch_indices, positions, kv_last_page_len, kv_indptr, kv_indices,
        k.data, v.data, fault_word(key.device), 0 if query is None else query.shape[1], num_heads,
        0 if table is None else table.shape[0], len(kv_last_page_len), 0 if kv_indices is None else len(kv_indices),
        *k.data.shape[:2], *_strides(query), *_strides(key), *_strides(value), *k.strides, *v.strides,
        head_size, v_size, _blocks(head_size), _blocks(v_size), 0 if table is None else table.shape[1], interleave,
        heads, k.format, v.format, num_warps=4, **chained(key.device), **UNFUSED,
    )  # fmt: skip
    return rotated


def _strides(x: torch.Tensor | None) -> tuple[int, int]:
    return (0, 0) if x is None else (x.stride(0), x.stride(1))


@implements("append_paged_kv_cache", tier=Tier.PORTABLE)
def append_paged_kv_cache(
    key: torch.Tensor,
    value: torch.Tensor | None,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    k_cache: Cache,
    kv_last_page_len: torch.Tensor,
    v_cache: Cache | None = None,
    kv_indptr: torch.Tensor | None = None,
    kv_indices: torch.Tensor | None = None,
    *,
    layout: str = "NHD",
) -> tuple[Cache, ...]:
    launch_append(
        key, value, batch_indices, positions, k_cache, kv_last_page_len, v_cache, kv_indptr, kv_indices, layout
    )
    return (k_cache,) if v_cache is None else (k_cache, v_cache)


@implements("rope_and_append", tier=Tier.PORTABLE)
def rope_and_append(
    key: torch.Tensor,
    value: torch.Tensor | None,
    pos_ids: torch.Tensor,
    table: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    k_cache: Cache,
    kv_last_page_len: torch.Tensor,
    v_cache: Cache | None = None,
    kv_indptr: torch.Tensor | None = None,
    kv_indices: torch.Tensor | None = None,
    *,
    interleave: bool = False,
    layout: str = "NHD",
) -> tuple[Cache, ...]:
    launch_append(
        key, value, batch_indices, positions, k_cache, kv_last_page_len, v_cache, kv_indptr, kv_indices, layout,
        pos_ids, table, interleave,
    )  # fmt: skip
    return (k_cache,) if v_cache is None else (k_cache, v_cache)
