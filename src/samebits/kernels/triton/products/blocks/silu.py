"""Gate and up side by side to int8 blocks: the end of gemm_silu_q8 wherever the product went through memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.int8_blocks import QUANTIZE_FAULT, silu_int8_blocks
from samebits.kernels.triton.lib.registry import UNFUSED


@triton.jit
def silu_kernel(
    x_ptr, codes_ptr, scales_ptr, fault_ptr, blocks, BLOCKS: tl.constexpr, FAULT: tl.constexpr, CHAINED: tl.constexpr
):
    """BLOCKS blocks of (gate * sigmoid(gate)) * up of a row [2H]."""
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    row = tl.program_id(1).to(tl.int64) * blocks
    column, inside = block[:, None] * 32 + tl.arange(0, 32)[None, :], block < blocks
    wait_for_previous(CHAINED)
    gate = tl.load(x_ptr + row * 64 + column, mask=inside[:, None], other=0.0)
    up = tl.load(x_ptr + row * 64 + blocks * 32 + column, mask=inside[:, None], other=0.0)
    codes, scale, refused = silu_int8_blocks(gate, up)
    tl.store(codes_ptr + row * 32 + column, codes, mask=inside[:, None])
    tl.store(scales_ptr + row + block, scale, mask=inside)
    tl.store(fault_ptr, FAULT, mask=tl.max((refused & inside).to(tl.int32), axis=0) != 0)


def silu_quantized(x: torch.Tensor, most_blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """quantize_q8(silu_and_mul(x)) for float32 x [T, 2H], dense: (codes [T, H], scales [T, H / 32]).

    most_blocks: of a program, a power of two.
    """
    num_tokens, half = x.shape[0], x.shape[1] // 2
    codes = torch.empty(num_tokens, half, dtype=torch.int8, device=x.device)
    scales = torch.empty(num_tokens, half // BLOCK, dtype=torch.float32, device=x.device)
    if codes.numel():
        blocks = half // BLOCK
        width = min(most_blocks, triton.next_power_of_2(blocks))
        silu_kernel[triton.cdiv(blocks, width), num_tokens](
            x, codes, scales, fault_word(x.device), blocks, BLOCKS=width, FAULT=QUANTIZE_FAULT, num_warps=4,
            **chained(x.device), **UNFUSED,
        )  # fmt: skip
    return codes, scales
