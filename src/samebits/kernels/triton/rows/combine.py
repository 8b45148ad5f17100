"""combine: the weighted rows of a token's experts, added in order of their ranks, then the shared experts' row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import sigmoid
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import load_wide, store_narrow
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.rows.elementwise import place

BLOCK = 512  # columns of a program, of one token


@triton.jit
def combine_kernel(
    y_ptr, weights_ptr, shared_ptr, gate_ptr, out_ptr, N, num_blocks, y_stride, weights_stride, shared_stride,
    gate_stride, RANKS: tl.constexpr, SHARED: tl.constexpr, GATED: tl.constexpr, BLOCK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    token, column = place(N, num_blocks, BLOCK)
    inside = column < N
    wait_for_previous(CHAINED)
    total = tl.zeros([BLOCK], tl.float32)
    for rank in tl.static_range(RANKS):
        weight = tl.load(weights_ptr + token * weights_stride + rank)
        total = total + load_wide(y_ptr + (token * RANKS + rank) * y_stride + column, inside) * weight
    if SHARED:
        row = load_wide(shared_ptr + token * shared_stride + column, inside)
        if GATED:
            gate = load_wide(gate_ptr + token * gate_stride, token >= 0)
            row = row * tl.where(gate == gate, sigmoid(gate), gate)  # a NaN stays one
        total = total + row
    store_narrow(out_ptr + token * N + column, total, inside)


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


@implements("combine", tier=Tier.PORTABLE)
def combine(
    y: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None = None,
    shared_gate: torch.Tensor | None = None,
) -> torch.Tensor:
    num_tokens, num_ranks = weights.shape
    n = y.shape[1]
    out = torch.empty(num_tokens, n, dtype=y.dtype, device=y.device)
    if out.numel() == 0:
        return out
    y, weights = _rows(y), _rows(weights)
    row = y if shared is None else _rows(shared)
    gate = y if shared_gate is None else shared_gate
    num_blocks = cdiv(n, BLOCK)
    combine_kernel[(num_tokens * num_blocks,)](
        y, weights, row, gate, out, n, num_blocks, y.stride(0), weights.stride(0), row.stride(0), gate.stride(0),
        RANKS=num_ranks, SHARED=shared is not None, GATED=shared_gate is not None, BLOCK=BLOCK, num_warps=4,
        **chained(y.device), **UNFUSED,
    )  # fmt: skip
    return out
