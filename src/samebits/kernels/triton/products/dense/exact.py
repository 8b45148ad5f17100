"""gemm on f32, f16 and bf16 weights in stream order: portable.

A run of 16 consecutive k is a chain from +0; runs are added in order inside a cut of 256, cuts in order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.grids import folded, folded_program
from samebits.kernels.triton.lib.registry import INTERPRETED, UNFUSED, implements
from samebits.kernels.triton.lib.rows import store_narrow, widen
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.products.dense.few import MOST_TOKENS, gemv_exact
from samebits.kernels.triton.products.dense.operands import as_operand, float_weight, operand_fault

RUN = tl.constexpr(16)
RUNS = tl.constexpr(16)
TILE_TOKENS, TILE_ROWS = 16, 32
MOST_ALONE = 1 << 16  # results up to which tiles leave most of a device idle, as those of a router do


@triton.jit
def run_sum(x_row, w_row, x_mask, w_mask, first, K: tl.constexpr):
    """The run from `first` on, for pointers to rows of x [BT] and of a weight [BN]: (float32 [BT, BN], refused)."""
    DTYPE: tl.constexpr = w_row.dtype.element_ty
    total = tl.zeros([x_row.shape[0], w_row.shape[0]], tl.float32)
    refused = tl.zeros([x_row.shape[0]], tl.int32)
    for i in tl.static_range(RUN):
        a, bad = as_operand(tl.load(x_row + first + i, mask=x_mask & (first + i < K), other=0.0), DTYPE)
        b = widen(tl.load(w_row + first + i, mask=w_mask & (first + i < K), other=0.0))
        total = total + a[:, None] * b[None, :]
        refused = refused | bad.to(tl.int32)
    return total, refused


@triton.jit
def tile_sum(x_row, w_row, x_mask, w_mask, K: tl.constexpr):
    """Products of rows of x [BT] with rows of a weight [BN] in stream order: (float32 [BT, BN], refused [BT])."""
    total = tl.zeros([x_row.shape[0], w_row.shape[0]], tl.float32)
    refused = tl.zeros([x_row.shape[0]], tl.int32)
    for cut in tl.range(0, K, RUN * RUNS):
        part = tl.zeros([x_row.shape[0], w_row.shape[0]], tl.float32)
        for i in tl.range(0, RUNS):
            run, bad = run_sum(x_row, w_row, x_mask, w_mask, cut + i * RUN, K)
            part = part + run
            refused = refused | bad
        total = total + part
    return total, refused


@triton.jit
def _gemm(
    x_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    fault_ptr,
    code,
    num_tokens,
    N,
    stride_x,
    stride_w,
    K: tl.constexpr,
    BT: tl.constexpr,
    BN: tl.constexpr,
):
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    token = folded_program() * BT + tl.arange(0, BT)
    x_row = x_ptr + token.to(tl.int64) * stride_x
    w_row = w_ptr + row.to(tl.int64) * stride_w
    y, refused = tile_sum(x_row, w_row, token < num_tokens, row < N, K)
    if bias_ptr is not None:
        y = settle(y) + widen(tl.load(bias_ptr + row, mask=row < N, other=0.0))[None, :]
    at = token.to(tl.int64)[:, None] * N + row[None, :]
    store_narrow(y_ptr + at, y, (token < num_tokens)[:, None] & (row < N)[None, :])
    tl.store(fault_ptr, code, mask=tl.max(refused) != 0)


@implements("gemm", tier=Tier.PORTABLE, when=float_weight)
def gemm_exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    num_tokens, k = x.shape
    n = weight.shape[0]
    y = torch.empty(num_tokens, n, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    if num_tokens <= MOST_TOKENS or (num_tokens * n <= MOST_ALONE and not INTERPRETED):
        gemv_exact(x, weight, bias, y)
        return y
    _gemm[folded(cdiv(n, TILE_ROWS), cdiv(num_tokens, TILE_TOKENS))](
        x,
        weight,
        bias,
        y,
        fault_word(x.device),
        operand_fault("gemm", weight.dtype),
        num_tokens,
        n,
        x.stride(0),
        weight.stride(0),
        K=k,
        BT=TILE_TOKENS,
        BN=TILE_ROWS,
        num_warps=2,
        **UNFUSED,
    )
    return y
