"""head_gemm on f32, f16 and bf16 weights in stream order: portable."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.grids import folded, folded_program
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import store_narrow
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.products.dense.exact import TILE_ROWS, TILE_TOKENS, tile_sum
from samebits.kernels.triton.products.dense.operands import float_weight, operand_fault


@triton.jit(do_not_specialize=["num_tokens"])
def _head_gemm(
    x_ptr, w_ptr, y_ptr, fault_ptr, code, num_tokens, N, stride_x, x_head, stride_w, w_head,
    HEADS: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Programs are (head and rows of its matrix, tokens)."""
    blocks = tl.cdiv(N, BN)
    row = tl.program_id(0) % blocks * BN + tl.arange(0, BN)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    token = (folded_program() * BT + tl.arange(0, BT)).to(tl.int64)
    x_row = x_ptr + token * stride_x + head * x_head
    w_row = w_ptr + head * w_head + row.to(tl.int64) * stride_w
    y, refused = tile_sum(x_row, w_row, token < num_tokens, row < N, K)
    at = (token * HEADS + head)[:, None] * N + row[None, :]
    store_narrow(y_ptr + at, y, (token < num_tokens)[:, None] & (row < N)[None, :])
    tl.store(fault_ptr, code, mask=tl.max(refused) != 0)


@implements("head_gemm", tier=Tier.PORTABLE, when=float_weight)
def head_gemm_exact(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    (num_tokens, num_heads, k), n = x.shape, weight.shape[1]
    y = torch.zeros(num_tokens, num_heads, n, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(-1) == 1 else x.contiguous()
    _head_gemm[folded(cdiv(n, TILE_ROWS) * num_heads, cdiv(num_tokens, TILE_TOKENS))](
        x, weight, y, fault_word(x.device), operand_fault("head_gemm", weight.dtype), num_tokens, n,
        x.stride(0), x.stride(1), weight.stride(1), weight.stride(0),
        HEADS=num_heads, K=k, BT=TILE_TOKENS, BN=TILE_ROWS, num_warps=2, **UNFUSED,
    )  # fmt: skip
    return y
