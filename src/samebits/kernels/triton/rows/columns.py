"""Moving columns: split_heads, merge_heads and slice_columns are views, concat_columns copies."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import num_rows, row_start, rows_of
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.rows.elementwise import BLOCK, place


@implements("split_heads", tier=Tier.PORTABLE)
def split_heads(x: torch.Tensor, *, heads: int = 1) -> torch.Tensor:
    return x.view(x.shape[0], heads, x.shape[1] // heads)


@implements("merge_heads", tier=Tier.PORTABLE)
def merge_heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2])


@implements("slice_columns", tier=Tier.PORTABLE)
def slice_columns(x: torch.Tensor, *, start: int = 0, stop: int = 0) -> torch.Tensor:
    return x[..., start:stop]


@triton.jit
def concat_kernel(
    a_ptr, b_ptr, y_ptr, K, M, num_blocks, a_outer, a_inner, b_outer, b_inner,
    A_GROUP: tl.constexpr, B_GROUP: tl.constexpr, BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    row, column = place(M, num_blocks, BLOCK)
    wait_for_previous(CHAINED)
    a = tl.load(a_ptr + row_start(row, A_GROUP, a_outer, a_inner) + column, mask=column < K, other=0.0)
    is_b = (column >= K) & (column < M)
    b = tl.load(b_ptr + row_start(row, B_GROUP, b_outer, b_inner) + column - K, mask=is_b, other=0.0)
    tl.store(y_ptr + row * M + column, tl.where(is_b, b, a), mask=column < M)


@implements("concat_columns", tier=Tier.PORTABLE)
def concat_columns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    width = a.shape[-1] + b.shape[-1]
    y = torch.empty((*a.shape[:-1], width), dtype=a.dtype, device=a.device)
    if y.numel() == 0:
        return y
    split = a.shape[-1]
    (a, *a_rows), (b, *b_rows) = rows_of(a), rows_of(b)
    num_blocks = cdiv(width, BLOCK)
    concat_kernel[(num_rows(y) * num_blocks,)](
        a, b, y, split, width, num_blocks, *a_rows[1:], *b_rows[1:], a_rows[0], b_rows[0], BLOCK, num_warps=4,
        **chained(y.device), **UNFUSED,
    )  # fmt: skip
    return y
