"""What all kernels of paged_attention share on the host: the call's tensors, its numbers, its faults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.language as tl

from samebits.core.numerics.elementary import recip
from samebits.kernels.triton.lib.cache_views import CacheView, cache_views
from samebits.kernels.triton.lib.faults import fault

OP = "paged_attention"
WIDEST_WINDOW = 1 << 30  # no position is further from another, and kernels subtract it from one in int32
CUT_LEN, RUN_LEN = 256, 16  # positions of a cut and of a run: the order of sums, see docs/numerics.md
ALIGN_BYTES = 16  # of vector loads and copies
BAD_TABLE = tl.constexpr(fault(OP, "kv_indptr", "a table or a length outside its arrays", "what ops/paged.py states"))
BAD_PAGE = tl.constexpr(fault(OP, "kv_indices", "a page that does not exist", "pages of the cache"))
BAD_QUERY = tl.constexpr(fault(OP, "q", "NaN, Inf or a value beyond the type's range", "finite values"))
BAD_COUNT = tl.constexpr(fault(OP, "qo_indptr", "more queries than tokens", "at most a sequence's length"))
BAD_SCORE = tl.constexpr(fault(OP, "k_cache", "NaN or Inf, stored or in a score", "finite values"))
BAD_VALUE = tl.constexpr(fault(OP, "v_cache", "NaN, Inf or a value beyond the type's range", "what append stores"))
BAD_MASK = tl.constexpr(fault(OP, "custom_mask", "too few entries", "queries x length of every sequence"))
BAD_SLOPES = tl.constexpr(fault(OP, "alibi_slopes", "NaN or Inf", "finite values"))
BAD_SINKS = tl.constexpr(fault(OP, "sinks", "NaN or +Inf", "finite values or -Inf"))


def are_aligned(*tensors: torch.Tensor) -> bool:
    """Whether what lies along the last axis starts at a multiple of 16 bytes, wherever on the others."""
    return all(
        x.data_ptr() % ALIGN_BYTES == 0 and not any(x.element_size() * n % ALIGN_BYTES for n in x.stride()[:-1])
        for x in tensors
    )


@dataclass(frozen=True)
class Call:
    """One call, with everything a launch needs that is not a kernel's own."""

    q: torch.Tensor
    k: CacheView
    v: CacheView
    out: torch.Tensor
    lse: torch.Tensor | None
    head_size: int
    v_dim: int
    group: int
    table: dict[str, Any]
    numbers: dict[str, Any]
    extras: dict[str, Any]

    @property
    def num_tokens(self) -> int:
        return self.q.shape[0]

    @property
    def num_kv_heads(self) -> int:
        return self.k.data.shape[2]

    @property
    def num_sequences(self) -> int:
        return self.table["num_seqs"]

    @property
    def num_cells(self) -> int:
        """Positions that the table has room for: a bound of the lengths' sum."""
        return self.table["num_entries"] * self.table["page_size"]

    @property
    def result(self) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        return self.out if self.lse is None else (self.out, self.lse)

    @property
    def is_aligned(self) -> bool:
        """Whether every head of queries, keys and values starts at a multiple of 16 bytes."""
        return are_aligned(self.q, self.k.data, self.v.data)

    def heads_of_part(self, most: int) -> int:
        """The largest divisor of a group that is at most so many: as many heads as a program's registers hold."""
        return max(n for n in range(1, most + 1) if self.group % n == 0)


def _table(qo_indptr: Any, kv_last_page_len: Any, kv_indptr: Any, kv_indices: Any, keys: CacheView) -> dict[str, Any]:
    num_seqs, num_pages = kv_last_page_len.shape[0], keys.data.shape[0]
    return {
        "qo_ptr": qo_indptr,
        "last_ptr": kv_last_page_len,
        "indptr_ptr": kv_indptr,
        "indices_ptr": kv_indices,
        "num_seqs": num_seqs,
        "num_entries": num_pages if kv_indices is None else kv_indices.shape[0],
        "num_pages": num_pages,
        "page_size": keys.data.shape[1],
        "TABLE": kv_indices is not None,
    }


def _numbers(head_size: int, sm_scale: float | None, window_left: int, cap: float, causal: bool) -> dict[str, Any]:
    scale = np.float32(1.0 / math.sqrt(head_size) if sm_scale is None else sm_scale)
    return {
        "scale": float(scale),
        "cap": float(np.float32(cap)),
        "inv_cap": float(recip(np.array(cap, np.float32))) if cap else 0.0,
        "window": min(window_left, WIDEST_WINDOW),
        "CAUSAL": causal,
        "WINDOW": window_left >= 0,
        "CAP": cap != 0,
    }


def make_call(q: Any, k_cache: Any, qo_indptr: Any, kv_last_page_len: Any, **given: Any) -> Call:
    """The call of a launcher's arguments; results are allocated, nothing is launched."""
    head_size, v_dim = q.shape[2], given["v_dim"] or q.shape[2]
    keys, values = cache_views(k_cache, given["v_cache"], given["layout"])
    attrs = (given["sm_scale"], given["window_left"], given["logits_soft_cap"], given["causal"])
    numbers = _numbers(head_size, *attrs)
    extras = {name: given[name] for name in ("alibi_slopes", "sinks", "custom_mask")}
    for flag, name in (("SLOPES", "alibi_slopes"), ("SINKS", "sinks"), ("MASK", "custom_mask")):
        numbers[flag] = extras[name] is not None
    return Call(
        q=q,
        k=keys,
        v=values,
        out=torch.empty((*q.shape[:2], v_dim), dtype=q.dtype, device=q.device),
        lse=torch.empty(q.shape[:2], dtype=torch.float32, device=q.device) if given["return_lse"] else None,
        head_size=head_size,
        v_dim=v_dim,
        group=q.shape[1] // keys.data.shape[2],
        table=_table(qo_indptr, kv_last_page_len, given["kv_indptr"], given["kv_indices"], keys),
        numbers=numbers,
        extras=extras,
    )
