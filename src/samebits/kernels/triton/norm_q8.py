"""add_rms_norm_q8: a norm that leaves int8 blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.chaining import chained, let_next_start, wait_for_previous
from samebits.kernels.triton.elementary import round_to_int, rsqrt
from samebits.kernels.triton.faults import fault, fault_word
from samebits.kernels.triton.norm import add_to_residual, too_wide
from samebits.kernels.triton.quantize import block_factors, largest_magnitude
from samebits.kernels.triton.registry import UNFUSED, implements
from samebits.kernels.triton.rows import fault_where, load_wide, num_rows, row_start, rows_of, sum_of_slots

MOST_BLOCKS = 64  # of 32 elements, that a program holds at a time
NOT_FINITE = tl.constexpr(
    fault("add_rms_norm_q8", "x", "NaN, Inf or a magnitude above 2^126 in the normalised row", "finite values")
)


@triton.jit
def add_norm_q8_kernel(
    x_ptr, residual_ptr, weight_ptr, codes_ptr, scales_ptr, fault_ptr, outer, inner, residual_outer, residual_inner,
    inv_k, eps, K: tl.constexpr, GROUP: tl.constexpr, RESIDUAL_GROUP: tl.constexpr, CUTS: tl.constexpr,
    BLOCKS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program owns a row. The new residual is read again for the blocks: in registers it would be spilled."""
    let_next_start(CHAINED)
    row = tl.program_id(0).to(tl.int64)
    first = tl.arange(0, CUTS)[:, None] * 256 + tl.arange(0, 16)[None, :]
    residual_row = residual_ptr + row_start(row, RESIDUAL_GROUP, residual_outer, residual_inner)
    wait_for_previous(CHAINED)
    _, slots = add_to_residual(x_ptr + row_start(row, GROUP, outer, inner) + first, residual_row + first, first, K)
    factor = rsqrt(sum_of_slots(slots, 1) * inv_k + eps)[:, None]
    tl.debug_barrier()  # the row was stored by other threads
    for start in tl.static_range(0, K // 32, BLOCKS):
        block = start + tl.arange(0, BLOCKS)[:, None]
        column = block * 32 + tl.arange(0, 32)[None, :]
        y = (load_wide(residual_row + column, column < K) * factor) * load_wide(weight_ptr + column, column < K)
        to_code, scale, refused = block_factors(largest_magnitude(y, 1)[:, None])
        tl.store(codes_ptr + row * K + column, round_to_int(y * to_code).to(tl.int8), mask=column < K)
        tl.store(scales_ptr + row * (K // 32) + block, scale, mask=block * 32 < K)
        fault_where(fault_ptr, NOT_FINITE, refused & (block * 32 < K))


@implements("add_rms_norm_q8", tier=Tier.PORTABLE, when=too_wide)
def add_rms_norm_q8(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    width = x.shape[-1]
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty((*x.shape[:-1], width // 32), dtype=torch.float32, device=x.device)
    if codes.numel() == 0:
        return codes, scales, residual
    x, group, outer, inner = rows_of(x)
    _, r_group, r_outer, r_inner = rows_of(residual)
    cuts = triton.next_power_of_2(triton.cdiv(width, 256))
    blocks = min(MOST_BLOCKS, triton.next_power_of_2(width // 32))
    add_norm_q8_kernel[(num_rows(x),)](
        x, residual, weight, codes, scales, fault_word(x.device), outer, inner, r_outer, r_inner, 1.0 / width, eps,
        width, group, r_group, cuts, blocks, num_warps=min(8, max(1, cuts // 4)), **chained(codes.device), **UNFUSED,
    )  # fmt: skip
    return codes, scales, residual
