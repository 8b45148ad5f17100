"""rope_both_and_append: append's launch, with the query's heads beside the keys and values."""

from __future__ import annotations

import torch

from samebits.core.tiers import Tier
from samebits.kernels.triton.caches.append import Cache, launch_append
from samebits.kernels.triton.lib.registry import implements


@implements("rope_both_and_append", tier=Tier.PORTABLE)
def rope_both_and_append(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
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
) -> tuple[torch.Tensor | Cache | None, ...]:
    rotated = launch_append(
        key, value, batch_indices, positions, k_cache, kv_last_page_len, v_cache, kv_indptr, kv_indices, layout,
        pos_ids, table, interleave, query,
    )  # fmt: skip
    return (rotated, k_cache) if v_cache is None else (rotated, k_cache, v_cache)
