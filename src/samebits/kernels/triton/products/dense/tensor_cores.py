"""gemm on f16 and bf16 weights with tensor cores: invariant.

Every output is one float32 accumulator that takes the products of 16 consecutive k at a time, in order of k, and no
kernel here splits K. So tiles and the number of tokens decide where an output is computed, not what it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samebits.core.shapes import upper
from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.devices import ON_AMD
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import EMULATE, INTERPRETED, UNFUSED, implements
from samebits.kernels.triton.lib.rows import narrow, store_narrow, widen
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.products.dense.descriptors import many
from samebits.kernels.triton.products.dense.operands import narrowed, operand_fault, refuse_row

MOST_FEW = 16
MOST_PADDED = 1024  # so many tokens are copied to fill tiles: reads beyond the last row are slow
TILE_TOKENS = 64
CHECKED = tl.constexpr(1024)  # elements of a row that are looked at together


@triton.jit
def _dot(a, b, acc):
    """a @ b + acc; the interpreter cannot multiply bfloat16."""
    if EMULATE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc)


@triton.jit
def _few(
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
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """BN rows of the weight times BT tokens; a program streams its rows through a pipeline of STAGES tiles.

    The last program of a tile of tokens looks for operands that are refused, beside the others: none waits for it.
    """
    if tl.program_id(0) == tl.num_programs(0) - 1:
        at = tl.program_id(1) * BT
        last = tl.minimum(at + BT, num_tokens)
        while at < last:
            refuse_row(x_ptr + at.to(tl.int64) * stride_x, fault_ptr, code, K, w_ptr.dtype.element_ty, CHECKED)
            at += 1
        return
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    token = tl.program_id(1) * BT + tl.arange(0, BT)
    w_row = w_ptr + row.to(tl.int64) * stride_w
    x_row = x_ptr + token.to(tl.int64) * stride_x
    acc = tl.zeros([BN, BT], tl.float32)
    for first in tl.range(0, K, BK, num_stages=STAGES):
        k = first + tl.arange(0, BK)
        w = tl.load(w_row[:, None] + k[None, :], mask=(row < N)[:, None] & (k < K)[None, :], other=0.0)
        x = tl.load(x_row[:, None] + k[None, :], mask=(token < num_tokens)[:, None] & (k < K)[None, :], other=0.0)
        acc = _dot(w, tl.trans(narrow(widen(x), w.dtype)), acc)
    y = tl.trans(acc)
    if bias_ptr is not None:
        y = settle(y) + widen(tl.load(bias_ptr + row, mask=row < N, other=0.0))[None, :]
    at = token.to(tl.int64)[:, None] * N + row[None, :]
    inside = (token < num_tokens)[:, None] & (row < N)[None, :]
    store_narrow(y_ptr + at, y, inside)


@dataclass(frozen=True)
class Few:
    """Tiles of the kernel for few tokens."""

    tokens: int
    rows: int
    k: int
    stages: int
    warps: int


def few_for(num_tokens: int, num_rows: int) -> Few:
    """The tiles that read a weight fastest: small ones where there are few rows to share among the device."""
    if ON_AMD:
        return Few(16, 32, 256, 2, 4)  # a pipeline that 64 KB of shared memory hold
    if num_rows >= 16384:
        return Few(16, 64, 128, 4, 4)
    return Few(8, 32, 256, 4, 2) if num_tokens <= 8 else Few(16, 32, 256, 4, 2)


def few(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor) -> None:
    num_tokens = x.shape[0]
    n, k = weight.shape
    tiles = few_for(num_tokens, n)
    _few[(cdiv(n, tiles.rows) + 1, cdiv(num_tokens, tiles.tokens))](
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
        BT=tiles.tokens,
        BN=tiles.rows,
        BK=tiles.k,
        STAGES=tiles.stages,
        num_warps=tiles.warps,
        **UNFUSED,
    )


def _when(call: OpCall) -> str | None:
    weight = call.inputs["weight"]
    if weight.format not in ("f16", "bf16"):
        return f"a weight in {weight.format}, not f16 or bf16"
    n, k = map(upper, weight.shape)
    if n % 8 or k % 16:
        return f"a weight of {n} x {k}, not multiples of 8 and 16"
    return None


@implements("gemm", tier=Tier.INVARIANT, when=_when)
def gemm_tensor(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    if x.shape[0] <= MOST_FEW or INTERPRETED:
        few(x, weight, bias, y)
    else:
        multiple = TILE_TOKENS if x.shape[0] <= MOST_PADDED else 1
        many(narrowed(x, weight.dtype, "gemm", multiple), weight, bias, y)
    return y
