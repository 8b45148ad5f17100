"""quantize_q8: rows in int8 blocks of 32."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.cuda.products.laid_out import beside
from samebits.kernels.cuda.rows.blocks import blocks_of_rows, serves
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import round_to_int
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.int8_blocks import (
    QUANTIZE_FAULT,
    block_factors,
    laid_block,
    laid_bytes,
    largest_magnitude,
)
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import fault_where, load_wide, num_rows, row_start, rows_of
from samebits.kernels.triton.lib.sizes import cdiv

BLOCKS = 16  # of a program, one after another in a row


@triton.jit(do_not_specialize=["width", "fault"])
def quantize_kernel(
    x_ptr, codes_ptr, scales_ptr, fault_ptr, fault, NB, num_groups, outer, inner, words_ptr, word_scales_ptr, width,
    GROUP: tl.constexpr, BLOCKS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    row = (program // num_groups).to(tl.int64)
    within = tl.arange(0, 32)[None, :]
    block = program % num_groups * BLOCKS + tl.arange(0, BLOCKS)[:, None]
    element = block * 32 + within
    inside = block < NB
    wait_for_previous(CHAINED)
    x = load_wide(x_ptr + row_start(row, GROUP, outer, inner) + element, inside)
    factor, scale, refused = block_factors(largest_magnitude(x, 1)[:, None])
    codes = round_to_int(x * factor).to(tl.int8)
    tl.store(codes_ptr + row * NB * 32 + element, codes, mask=inside)
    # one thread of a block stores for it: its values are where it is
    lead = inside & (within == 0)
    tl.store(scales_ptr + row * NB + block + within * 0, scale, mask=lead)
    if words_ptr is not None:
        laid = laid_block(row, block, width)
        tl.store(words_ptr + laid_bytes(laid, within), codes, mask=inside)
        tl.store(word_scales_ptr + laid + within * 0, scale, mask=lead)
    fault_where(fault_ptr, fault, refused & (within == 0))


def quantized(x: torch.Tensor, fault: int, tier: Tier = Tier.PORTABLE) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., K] as (codes, scales), laid out for a tier's products; `fault` is stored where a value has no code."""
    num_blocks = x.shape[-1] // 32
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty((*x.shape[:-1], num_blocks), dtype=torch.float32, device=x.device)
    if codes.numel() == 0:
        return codes, scales
    x, group, outer, inner = rows_of(x)
    num_groups = cdiv(num_blocks, BLOCKS)
    quantize_kernel[(num_rows(x) * num_groups,)](
        x, codes, scales, fault_word(x.device), fault, num_blocks, num_groups, outer, inner,
        **beside(codes, scales, tier), GROUP=group, BLOCKS=BLOCKS, num_warps=4, **chained(x.device), **UNFUSED,
    )  # fmt: skip
    return codes, scales


@implements("quantize_q8", tier=Tier.FAST)
def quantize_q8_fast(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if serves(x):
        return blocks_of_rows(x, QUANTIZE_FAULT)
    return quantized(x, QUANTIZE_FAULT, Tier.FAST)


@implements("quantize_q8", tier=Tier.PORTABLE)
def quantize_q8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return quantized(x, QUANTIZE_FAULT)
