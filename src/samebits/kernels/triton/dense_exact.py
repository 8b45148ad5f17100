"""gemm on f32, f16 and bf16 weights in stream order: portable.

A run of 16 consecutive k is a chain from +0; runs are added in order inside a cut of 256, cuts in order. Products of
16-bit operands are exact, so on NVIDIA a run of them may be a dot product in float32, which Triton computes there as
one fma after another in order of k. Elsewhere, and on f32 weights, whose products are rounded, the order is written
out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.dense import ON_AMD, as_operand, float_weight, narrow, operand_fault
from samebits.kernels.triton.dense_gemv import MOST_TOKENS, gemv_exact
from samebits.kernels.triton.faults import fault_word
from samebits.kernels.triton.registry import INTERPRETED, UNFUSED, implements

DOT_PROVEN = False  # whether a device has shown the reference's bits for runs that are dot products
RUN = tl.constexpr(16)
RUNS = tl.constexpr(16)


@triton.jit
def run_sum(x_row, w_row, x_mask, w_mask, first, zero, K: tl.constexpr, DOT: tl.constexpr):
    """The run from `first` on, for pointers to rows of x [BT] and of a weight [BN]: (float32 [BT, BN], refused)."""
    DTYPE: tl.constexpr = w_row.dtype.element_ty
    if DOT:
        k = first + tl.arange(0, RUN)
        x = tl.load(x_row[:, None] + k[None, :], mask=x_mask[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(w_row[:, None] + k[None, :], mask=w_mask[:, None] & (k < K)[None, :], other=0.0)
        a, bad = as_operand(x, DTYPE)
        b, _ = as_operand(w, DTYPE)
        # A start that the compiler knows to be zero would be replaced by what the run is added to.
        start = tl.zeros([x_row.shape[0], w_row.shape[0]], tl.float32) + zero
        return tl.dot(a, tl.trans(b), start, input_precision="ieee"), tl.max(bad.to(tl.int32), axis=1)
    total = tl.zeros([x_row.shape[0], w_row.shape[0]], tl.float32)
    refused = tl.zeros([x_row.shape[0]], tl.int32)
    for i in tl.static_range(RUN):
        a, bad = as_operand(tl.load(x_row + first + i, mask=x_mask & (first + i < K), other=0.0), DTYPE)
        b, _ = as_operand(tl.load(w_row + first + i, mask=w_mask & (first + i < K), other=0.0), DTYPE)
        total = total + a[:, None] * b[None, :]
        refused = refused | bad.to(tl.int32)
    return total, refused


@triton.jit
def tile_sum(x_row, w_row, x_mask, w_mask, zero, K: tl.constexpr, DOT: tl.constexpr):
    """Products of rows of x [BT] with rows of a weight [BN] in stream order: (float32 [BT, BN], refused [BT]).

    `zero` is 0.0, an argument of the kernel.
    """
    total = tl.zeros([x_row.shape[0], w_row.shape[0]], tl.float32)
    refused = tl.zeros([x_row.shape[0]], tl.int32)
    for cut in tl.range(0, K, RUN * RUNS):
        part = tl.zeros([x_row.shape[0], w_row.shape[0]], tl.float32)
        for i in tl.range(0, RUNS):
            run, bad = run_sum(x_row, w_row, x_mask, w_mask, cut + i * RUN, zero, K, DOT)
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
    zero,
    K: tl.constexpr,
    BT: tl.constexpr,
    BN: tl.constexpr,
    DOT: tl.constexpr,
):
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    token = tl.program_id(1) * BT + tl.arange(0, BT)
    x_row = x_ptr + token.to(tl.int64) * stride_x
    w_row = w_ptr + row.to(tl.int64) * stride_w
    y, refused = tile_sum(x_row, w_row, token < num_tokens, row < N, zero, K, DOT)
    if bias_ptr is not None:
        y = y + tl.load(bias_ptr + row, mask=row < N, other=0.0).to(tl.float32)[None, :]
    at = token.to(tl.int64)[:, None] * N + row[None, :]
    tl.store(y_ptr + at, narrow(y, y_ptr.dtype.element_ty), mask=(token < num_tokens)[:, None] & (row < N)[None, :])
    tl.store(fault_ptr, code, mask=tl.max(refused) != 0)


def dot_allowed(weight: torch.Tensor) -> bool:
    """Whether a run may be a dot product: exact products, compiled code."""
    return DOT_PROVEN and weight.dtype != torch.float32 and not ON_AMD and not INTERPRETED


@implements("gemm", tier=Tier.PORTABLE, when=float_weight)
def gemm_exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    num_tokens, k = x.shape
    n = weight.shape[0]
    y = torch.empty(num_tokens, n, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    if num_tokens <= MOST_TOKENS:
        gemv_exact(x, weight, bias, y)
        return y
    dot = dot_allowed(weight)
    bt, bn, warps = (64, 128, 4) if dot and num_tokens > 16 else (16, 32, 2)
    grid = (triton.cdiv(n, bn), triton.cdiv(num_tokens, bt))
    _gemm[grid](
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
        0.0,
        K=k,
        BT=bt,
        BN=bn,
        DOT=dot,
        num_warps=warps,
        **UNFUSED,
    )
    return y
