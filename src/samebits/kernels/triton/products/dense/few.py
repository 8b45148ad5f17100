"""Products in stream order for a few tokens: portable.

A thread owns runs of 16 consecutive k, so that a warp reads a row's memory side by side; the sums of runs then change
hands, and are added in order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import INTERPRETED, UNFUSED
from samebits.kernels.triton.lib.rows import store_narrow, widen
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.products.dense.operands import as_operand, operand_fault

MOST_TOKENS = 8
ROWS = 32 if INTERPRETED else 2  # of a program, each of which takes the interpreter milliseconds


@triton.jit
def _split4(x):
    """[A, B, 4] as four [A, B], in order."""
    even, odd = tl.split(tl.reshape(x, [x.shape[0], x.shape[1], 2, 2]))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    return a, b, c, d


@triton.jit
def _chain4(total, x, y):
    """total + x * y, one element of the last axis (4) after another."""
    x0, x1, x2, x3 = _split4(x)
    y0, y1, y2, y3 = _split4(y)
    return (((total + x0 * y0) + x1 * y1) + x2 * y2) + x3 * y3


@triton.jit
def _chain8(total, x, y):
    """The same for a last axis of 8."""
    A: tl.constexpr = x.shape[0]
    B: tl.constexpr = x.shape[1]
    x_low, x_high = tl.split(tl.permute(tl.reshape(x, [A, B, 2, 4]), [0, 1, 3, 2]))
    y_low, y_high = tl.split(tl.permute(tl.reshape(y, [A, B, 2, 4]), [0, 1, 3, 2]))
    return _chain4(_chain4(total, x_low, y_low), x_high, y_high)


@triton.jit
def _add4(total, x):
    a, b, c, d = _split4(x)
    return (((total + a) + b) + c) + d


@triton.jit
def _add16(total, x):
    """total [A, B] + x [A, B, 16], one element of the last axis after another."""
    A: tl.constexpr = x.shape[0]
    B: tl.constexpr = x.shape[1]
    low, high = tl.split(tl.permute(tl.reshape(x, [A, B, 2, 8]), [0, 1, 3, 2]))
    a, b = tl.split(tl.permute(tl.reshape(low, [A, B, 2, 4]), [0, 1, 3, 2]))
    c, d = tl.split(tl.permute(tl.reshape(high, [A, B, 2, 4]), [0, 1, 3, 2]))
    return _add4(_add4(_add4(_add4(total, a), b), c), d)


@triton.jit
def row_dots(x_row, w_row, w_mask, K: tl.constexpr, R: tl.constexpr, V: tl.constexpr):
    """A row of x times rows of a weight, given by pointers [R]: (float32 [R], whether x is refused).

    16 cuts at a time, V elements a load.
    """
    DTYPE: tl.constexpr = w_row.dtype.element_ty
    total = tl.zeros([R, 1], tl.float32)
    refused = tl.zeros([R, 256], tl.int32)
    for first in tl.range(0, K, 4096):
        runs = tl.zeros([R, 256], tl.float32)
        for part in tl.static_range(16 // V):
            k = first + tl.arange(0, 256)[None, :, None] * 16 + part * V + tl.arange(0, V)[None, None, :]
            w = tl.load(w_row[:, None, None] + k, mask=w_mask[:, None, None] & (k < K), other=0.0)
            x = tl.load(x_row + k, mask=k < K, other=0.0)
            a, bad = as_operand(x, DTYPE)
            a, b = tl.broadcast_to(a, [R, 256, V]), widen(w)
            runs = _chain8(runs, a, b) if V == 8 else _chain4(runs, a, b)
            refused = refused | tl.max(bad.to(tl.int32), axis=2)
        cuts = _add16(tl.zeros([R, 16], tl.float32), tl.reshape(runs, [R, 16, 16]))
        total = _add16(total, tl.reshape(cuts, [R, 1, 16]))
    return tl.reshape(total, [R]), tl.max(tl.max(refused, axis=1)) != 0


@triton.jit
def _gemv(
    x_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    fault_ptr,
    code,
    N,
    stride_x,
    stride_w,
    K: tl.constexpr,
    R: tl.constexpr,
    V: tl.constexpr,
):
    """R rows of the weight times one token."""
    blocks = tl.cdiv(N, R)
    row = tl.program_id(0) % blocks * R + tl.arange(0, R)
    token = (tl.program_id(0) // blocks).to(tl.int64)
    y, refused = row_dots(x_ptr + token * stride_x, w_ptr + row.to(tl.int64) * stride_w, row < N, K, R, V)
    if bias_ptr is not None:
        y = settle(y) + widen(tl.load(bias_ptr + row, mask=row < N, other=0.0))
    store_narrow(y_ptr + token * N + row, y, row < N)
    tl.store(fault_ptr, code, mask=refused)


def gemv_exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor) -> None:
    """y [T, N] from x [T, K] and a weight [N, K] in f32, f16 or bf16; neither T nor N is 0."""
    num_tokens, k = x.shape
    n = weight.shape[0]
    _gemv[(cdiv(n, ROWS) * num_tokens,)](
        x,
        weight,
        bias,
        y,
        fault_word(x.device),
        operand_fault("gemm", weight.dtype),
        n,
        x.stride(0),
        weight.stride(0),
        K=k,
        R=ROWS,
        V=16 // weight.element_size(),
        num_warps=2,
        **UNFUSED,
    )
