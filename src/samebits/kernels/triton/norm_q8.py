"""add_rms_norm_q8: a norm that leaves int8 blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.chaining import chained, let_next_start, wait_for_previous
from samebits.kernels.triton.elementary import round_to_int
from samebits.kernels.triton.faults import fault, fault_word
from samebits.kernels.triton.norm import add_to_residual, cuts_of, inverse_rms, load_steps, places, too_wide
from samebits.kernels.triton.quantize import block_factors, largest_magnitude
from samebits.kernels.triton.registry import UNFUSED, implements
from samebits.kernels.triton.rows import fault_where, num_rows, row_start, rows_of

NOT_FINITE = tl.constexpr(
    fault("add_rms_norm_q8", "x", "NaN, Inf or a magnitude above 2^126 in the normalised row", "finite values")
)


@triton.jit
def add_norm_q8_kernel(
    x_ptr, residual_ptr, weight_ptr, codes_ptr, scales_ptr, fault_ptr, num_rows, K, outer, inner, residual_outer,
    residual_inner, inv_k, eps,
    GROUP: tl.constexpr, RESIDUAL_GROUP: tl.constexpr, R: tl.constexpr, CUTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start(CHAINED)
    row, first, width = places(num_rows, K, R, CUTS)
    x_ptrs = x_ptr + row_start(row, GROUP, outer, inner) + first
    residual_ptrs = residual_ptr + row_start(row, RESIDUAL_GROUP, residual_outer, residual_inner) + first
    weights = load_steps(weight_ptr + first, first, width)
    wait_for_previous(CHAINED)
    steps, slots = add_to_residual(x_ptrs, residual_ptrs, first, width)
    factor = inverse_rms(slots, inv_k, eps, R)
    slot, scales = tl.arange(0, 16)[None, :], tl.zeros([CUTS, 16], tl.float32)
    finite = tl.full([CUTS, 1], True, tl.int1)
    for i in tl.static_range(8):  # a block of 32 is two steps of a cut
        column = first + i * 32
        low = (steps[2 * i] * factor) * weights[2 * i]
        high = (steps[2 * i + 1] * factor) * weights[2 * i + 1]
        amax = largest_magnitude(tl.maximum(tl.abs(low), tl.abs(high), tl.PropagateNan.ALL), 1)[:, None]
        to_code, scale, refused = block_factors(amax)
        scales = tl.where(slot == i, scale, scales)
        finite = finite & (refused == 0)
        tl.store(codes_ptr + row * K + column, round_to_int(low * to_code).to(tl.int8), mask=column < width)
        tl.store(codes_ptr + row * K + column + 16, round_to_int(high * to_code).to(tl.int8), mask=column < width)
    # the scales of a cut lie side by side: one store for all of them
    block = (first - slot) // 32 + slot
    tl.store(scales_ptr + row * (K // 32) + block, scales, mask=(slot < 8) & (block * 32 < width))
    fault_where(fault_ptr, NOT_FINITE, finite == 0)


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
    count, (height, cuts, warps) = num_rows(x), cuts_of(width)
    add_norm_q8_kernel[(triton.cdiv(count, height),)](
        x, residual, weight, codes, scales, fault_word(x.device), count, width, outer, inner, r_outer, r_inner,
        1.0 / width, eps, group, r_group, height, cuts, num_warps=warps, **chained(codes.device), **UNFUSED,
    )  # fmt: skip
    return codes, scales, residual
