"""Activations on their way into the products of the fast tier: int8 blocks to float16."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.elementary import bits, from_bits
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import FUSED
from samebits.kernels.triton.lib.rows import fault_where
from samebits.kernels.triton.products.blocks.checks import activation_faults, not_finite


@triton.jit
def _widen(
    codes_ptr,
    scales_ptr,
    x_ptr,
    row_scale_ptr,
    fault_ptr,
    num_tokens,
    stride_codes,
    stride_scales,
    NB: tl.constexpr,
    ALL: tl.constexpr,
    BLOCKS: tl.constexpr,
    HALVES: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
):
    """Blocks of a token as float16, divided by a power of two of the token's own, so that none leaves the range."""
    token = tl.program_id(0).to(tl.int64)
    every = tl.arange(0, ALL)
    all_scales = tl.load(scales_ptr + token * stride_scales + every, mask=every < NB, other=0.0)
    power = bits(tl.max(tl.abs(all_scales))) & 0x7F800000
    power = tl.where(power == 0, 0x3F800000, power)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    j = tl.arange(0, 32)
    inside = (block < NB)[:, None] & (j >= 0)[None, :]
    place = block[:, None] * 32 + j[None, :]
    codes = tl.load(codes_ptr + token * stride_codes + place, mask=inside, other=0)
    fault_where(fault_ptr, BAD_CODES, tl.max((codes == -128).to(tl.int32), axis=1) != 0)
    scale = tl.load(scales_ptr + token * stride_scales + block, mask=block < NB, other=0.0)
    x = (codes.to(tl.float32) * (scale * from_bits(0x7F000000 - power))[:, None]).to(tl.float16)
    if HALVES:
        half = (j // 16)[None, :] * (num_tokens * (NB * 16)) + block[:, None] * 16 + (j % 16)[None, :]
        tl.store(x_ptr + token * (NB * 16) + half, x, mask=inside)
    else:
        tl.store(x_ptr + token * (NB * 32) + place, x, mask=inside)
    if tl.program_id(1) == 0:
        tl.store(row_scale_ptr + token, from_bits(power))
        fault_where(fault_ptr, BAD_SCALES, not_finite(all_scales))


def widened(codes: torch.Tensor, scales: torch.Tensor, op_name: str, halves: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(float16 [T, K], or [2, T, K / 2] with the low halves of all blocks first; float32 [T], what to multiply by)."""
    num_tokens, nb = scales.shape
    shape = (2, num_tokens, nb * 16) if halves else (num_tokens, nb * BLOCK)
    x = torch.empty(shape, dtype=torch.float16, device=codes.device)
    row_scale = torch.empty(num_tokens, dtype=torch.float32, device=codes.device)
    blocks = min(triton.next_power_of_2(nb), 64)
    _widen[(num_tokens, triton.cdiv(nb, blocks))](
        codes,
        scales,
        x,
        row_scale,
        fault_word(codes.device),
        num_tokens,
        codes.stride(0),
        scales.stride(0),
        NB=nb,
        ALL=triton.next_power_of_2(nb),
        BLOCKS=blocks,
        HALVES=halves,
        **activation_faults(op_name),
        num_warps=4,
        **FUSED,
    )
    return x, row_scale
