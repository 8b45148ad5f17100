"""add_rms_norm_q8: a norm that leaves int8 blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.cuda.products.laid_out import beside
from samebits.kernels.cuda.rows.blocks import blocks_of_rows, serves
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import bits, from_bits, round_to_int, rsqrt
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.int8_blocks import block_factors, laid_block, laid_element, largest_magnitude
from samebits.kernels.triton.lib.registry import INTERPRETED, UNFUSED, implements
from samebits.kernels.triton.lib.rows import fault_where, load_wide, num_rows, row_start, rows_of, sum_of_slots
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.rows.norm import add_to_residual, load_steps, too_wide
from samebits.kernels.triton.rows.row_sum import in_shared_memory, row_sum

MOST_BLOCKS = 64  # of 32 elements, that are read again at a time
FEW_ROWS = 512  # up to which the time of one row counts, not the number of instructions
NOT_FINITE = tl.constexpr(
    fault("add_rms_norm_q8", "x", "NaN, Inf or a magnitude above 2^80 in the normalised row", "finite values")
)


@triton.jit
def store_steps(
    codes_ptr, scales_ptr, words_ptr, word_scales_ptr, fault_ptr, steps, weights, factor, row, width, first,
    K: tl.constexpr, CUTS: tl.constexpr,
):  # fmt: skip
    """The blocks of a row that threads hold as norm.py says: steps 2b and 2b + 1 make block b of each cut."""
    slot = tl.arange(0, CUTS * 16)
    codes_ptr += row * K
    scales_ptr += row * (K // 32)
    for b in tl.static_range(8):
        low = settle(settle(steps[2 * b] * factor) * weights[2 * b])
        high = settle(settle(steps[2 * b + 1] * factor) * weights[2 * b + 1])
        largest = tl.maximum(bits(low) & 0x7FFFFFFF, bits(high) & 0x7FFFFFFF)
        amax = tl.max(tl.reshape(largest, [CUTS, 16]), axis=1)[:, None]
        amax = from_bits(tl.reshape(tl.broadcast_to(amax, [CUTS, 16]), [CUTS * 16]))
        to_code, scale, refused = block_factors(amax)
        column, inside = first + b * 32, first + b * 32 < K
        low, high = round_to_int(low * to_code).to(tl.int8), round_to_int(high * to_code).to(tl.int8)
        tl.store(codes_ptr + column, low, mask=inside)
        tl.store(codes_ptr + column + 16, high, mask=inside)
        # one thread of a block stores for it: its values are where it is
        lead = inside & (slot % 16 == 0)
        tl.store(scales_ptr + column // 32, scale, mask=lead)
        if words_ptr is not None:
            laid = laid_block(row, column // 32, width)
            tl.store(words_ptr + laid * 32 + laid_element(slot % 16), low, mask=inside)
            tl.store(words_ptr + laid * 32 + laid_element(slot % 16 + 16), high, mask=inside)
            tl.store(word_scales_ptr + laid, scale, mask=lead)
        fault_where(fault_ptr, NOT_FINITE, refused & lead)


@triton.jit(do_not_specialize=["width"])
def few_rows_kernel(
    x_ptr, residual_ptr, weight_ptr, codes_ptr, scales_ptr, fault_ptr, outer, inner, residual_outer, residual_inner,
    inv_k, eps, K: tl.constexpr, GROUP: tl.constexpr, RESIDUAL_GROUP: tl.constexpr, CUTS: tl.constexpr,
    ASM: tl.constexpr, words_ptr, word_scales_ptr, width, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program owns a row and keeps it in registers: the fewest steps one after another."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, CUTS * 16)
    first = slot // 16 * 256 + slot % 16
    weights = load_steps(weight_ptr + first, first, K)
    x_ptrs = x_ptr + row_start(row, GROUP, outer, inner) + first
    residual_ptrs = residual_ptr + row_start(row, RESIDUAL_GROUP, residual_outer, residual_inner) + first
    wait_for_previous(CHAINED)
    steps, slots = add_to_residual(x_ptrs, residual_ptrs, first, K)
    factor = rsqrt(settle(row_sum(slots, ASM)) * inv_k + eps)
    store_steps(
        codes_ptr, scales_ptr, words_ptr, word_scales_ptr, fault_ptr, steps, weights, factor, row, width, first, K, CUTS
    )


@triton.jit
def many_rows_kernel(
    x_ptr, residual_ptr, weight_ptr, codes_ptr, scales_ptr, fault_ptr, outer, inner, residual_outer, residual_inner,
    inv_k, eps, K: tl.constexpr, GROUP: tl.constexpr, RESIDUAL_GROUP: tl.constexpr, CUTS: tl.constexpr,
    BLOCKS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program owns a row and reads the new residual again for the blocks: fewer instructions."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.arange(0, CUTS)[:, None] * 256 + tl.arange(0, 16)[None, :]
    residual_row = residual_ptr + row_start(row, RESIDUAL_GROUP, residual_outer, residual_inner)
    wait_for_previous(CHAINED)
    _, slots = add_to_residual(x_ptr + row_start(row, GROUP, outer, inner) + first, residual_row + first, first, K)
    factor = rsqrt(settle(sum_of_slots(slots, 1)) * inv_k + eps)[:, None]
    tl.debug_barrier()  # the row was stored by other threads
    for start in tl.static_range(0, K // 32, BLOCKS):
        block = start + tl.arange(0, BLOCKS)[:, None]
        column = block * 32 + tl.arange(0, 32)[None, :]
        y = settle(load_wide(residual_row + column, column < K) * factor)
        y = settle(y * load_wide(weight_ptr + column, column < K))
        to_code, scale, refused = block_factors(largest_magnitude(y, 1)[:, None])
        tl.store(codes_ptr + row * K + column, round_to_int(y * to_code).to(tl.int8), mask=column < K)
        tl.store(scales_ptr + row * (K // 32) + block, scale, mask=block * 32 < K)
        fault_where(fault_ptr, NOT_FINITE, refused & (block * 32 < K))


Normed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@implements("add_rms_norm_q8", tier=Tier.FAST, when=too_wide)
def add_rms_norm_q8_fast(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-5) -> Normed:
    if serves(x, residual, weight):
        return *blocks_of_rows(x, NOT_FINITE.value, residual, weight, eps), residual
    return _normed(x, residual, weight, eps, Tier.FAST)


@implements("add_rms_norm_q8", tier=Tier.PORTABLE, when=too_wide)
def add_rms_norm_q8(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-5) -> Normed:
    return _normed(x, residual, weight, eps, Tier.PORTABLE)


def _normed(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, tier: Tier) -> Normed:
    """The op, its codes laid out for the products of a tier."""
    width = x.shape[-1]
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty((*x.shape[:-1], width // 32), dtype=torch.float32, device=x.device)
    if codes.numel() == 0:
        return codes, scales, residual
    x, group, outer, inner = rows_of(x)
    _, r_group, r_outer, r_inner = rows_of(residual)
    cuts = power_of_two(cdiv(width, 256))
    given = (
        x, residual, weight, codes, scales, fault_word(x.device), outer, inner, r_outer, r_inner, 1.0 / width, eps,
        width, group, r_group, cuts,
    )  # fmt: skip
    count, options = num_rows(x), {**chained(codes.device), **UNFUSED}
    assembly = in_shared_memory(cuts)
    if count <= FEW_ROWS and (assembly or INTERPRETED):
        few_rows_kernel[(count,)](
            *given, assembly, **beside(codes, scales, tier), num_warps=max(1, cuts // 2), **options
        )
    else:
        blocks = min(MOST_BLOCKS, power_of_two(width // 32))
        many_rows_kernel[(count,)](*given, blocks, num_warps=min(8, max(1, cuts // 4)), **options)
    return codes, scales, residual
