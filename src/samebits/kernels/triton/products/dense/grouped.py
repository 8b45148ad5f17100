"""grouped_gemm on f32, f16 and bf16 weights in stream order: portable."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.grids import folded, folded_program
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import store_narrow
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.products.dense.exact import tile_sum
from samebits.kernels.triton.products.dense.operands import float_weight, operand_fault
from samebits.kernels.triton.products.segments import segment_tile

GROUP_FAULT = fault("grouped_gemm", "weight_indices", "an index out of range", "indices of weights")


@triton.jit
def _grouped(
    x_ptr,
    w_ptr,
    indptr_ptr,
    indices_ptr,
    y_ptr,
    fault_ptr,
    operand_code,
    index_code,
    num_tokens,
    num_weights,
    N,
    stride_x,
    stride_e,
    stride_w,
    K: tl.constexpr,
    SEGMENTS: tl.constexpr,
    BOUND: tl.constexpr,
    BT: tl.constexpr,
    BN: tl.constexpr,
):
    segment, first, end = segment_tile(indptr_ptr, folded_program(), SEGMENTS, BOUND, BT)
    if segment < SEGMENTS:
        group = segment
        if indices_ptr is not None:
            group = tl.load(indices_ptr + segment)
        tl.store(fault_ptr, index_code, mask=(group < 0) | (group >= num_weights))
        if (group >= 0) & (group < num_weights):
            token = first + tl.arange(0, BT)
            row = tl.program_id(0) * BN + tl.arange(0, BN)
            kept = (token >= 0) & (token < tl.minimum(end, num_tokens))
            x_row = x_ptr + token.to(tl.int64) * stride_x
            w_row = w_ptr + group.to(tl.int64) * stride_e + row.to(tl.int64) * stride_w
            y, refused = tile_sum(x_row, w_row, kept, row < N, K)
            at = token.to(tl.int64)[:, None] * N + row[None, :]
            store_narrow(y_ptr + at, y, kept[:, None] & (row < N)[None, :])
            tl.store(fault_ptr, operand_code, mask=tl.max(refused) != 0)


@implements("grouped_gemm", tier=Tier.PORTABLE, when=float_weight)
def grouped_gemm_exact(
    x: torch.Tensor, weight: torch.Tensor, seg_indptr: torch.Tensor, weight_indices: torch.Tensor | None = None
) -> torch.Tensor:
    """Rows beyond the last segment are zeros."""
    num_tokens, k = x.shape
    num_weights, n = weight.shape[:2]
    segments = seg_indptr.shape[0] - 1
    y = torch.zeros(num_tokens, n, dtype=x.dtype, device=x.device)
    if y.numel() == 0 or segments == 0:
        return y
    bt, bn = 16, 64
    # Every segment ends in at most one tile that is not full.
    tiles = min(num_tokens, num_tokens // bt + segments)
    _grouped[folded(cdiv(n, bn), tiles)](
        x,
        weight,
        seg_indptr,
        weight_indices,
        y,
        fault_word(x.device),
        operand_fault("grouped_gemm", weight.dtype),
        GROUP_FAULT,
        num_tokens,
        num_weights,
        n,
        x.stride(0),
        weight.stride(0),
        weight.stride(1),
        K=k,
        SEGMENTS=segments,
        BOUND=power_of_two(segments),
        BT=bt,
        BN=bn,
        num_warps=4,
        **UNFUSED,
    )
    return y
