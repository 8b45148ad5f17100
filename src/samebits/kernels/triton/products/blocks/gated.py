"""Gate and up side by side to int8 blocks: the end of a gated layer's first product where that went through memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.core.tiers import Tier
from samebits.kernels.cuda.products.laid_out import beside
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.int8_blocks import (
    QUANTIZE_FAULT,
    int8_blocks,
    laid_block,
    laid_bytes,
    silu_int8_blocks,
)
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.rows.gated import activated

SILU_BLOCKS = 32  # of a program that ends gemm_silu_q8 for many tokens


@triton.jit(do_not_specialize=["width"])
def gated_kernel(
    x_ptr, codes_ptr, scales_ptr, fault_ptr, blocks, alpha, limit, words_ptr, word_scales_ptr, width,
    FORM: tl.constexpr, BLOCKS: tl.constexpr, FAULT: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of a row [2H]; FORM, alpha, limit: of rows/gated.py."""
    token = tl.program_id(0).to(tl.int64)
    row = token * blocks
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    column, inside = block[:, None] * 32 + tl.arange(0, 32)[None, :], block < blocks
    wait_for_previous(CHAINED)
    gate = tl.load(x_ptr + row * 64 + column, mask=inside[:, None], other=0.0)
    up = tl.load(x_ptr + row * 64 + blocks * 32 + column, mask=inside[:, None], other=0.0)
    if FORM == "silu":
        codes, scale, refused = silu_int8_blocks(gate, up)
    else:
        codes, scale, refused = int8_blocks(settle(activated(gate, up, alpha, limit, FORM)))
    tl.store(codes_ptr + row * 32 + column, codes, mask=inside[:, None])
    tl.store(scales_ptr + row + block, scale, mask=inside)
    if words_ptr is not None:
        laid = laid_block(token, block, width)
        tl.store(words_ptr + laid_bytes(laid[:, None], tl.arange(0, 32)[None, :]), codes, mask=inside[:, None])
        tl.store(word_scales_ptr + laid, scale, mask=inside)
    tl.store(fault_ptr, FAULT, mask=tl.max((refused & inside).to(tl.int32), axis=0) != 0)


def gated_quantized(
    x: torch.Tensor,
    most_blocks: int,
    form: str = "silu",
    alpha: float = 0.0,
    limit: float = 0.0,
    tier: Tier = Tier.PORTABLE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """quantize_q8 of a gated activation of float32 x [T, 2H], dense: (codes [T, H], scales [T, H / 32]).

    most_blocks: of a program, a power of two. form: "silu", "tanh" (gelu) or "clamped", which reads alpha and limit.
    tier: for whose products codes are laid out.
    """
    num_tokens, half = x.shape[0], x.shape[1] // 2
    codes = torch.empty(num_tokens, half, dtype=torch.int8, device=x.device)
    scales = torch.empty(num_tokens, half // BLOCK, dtype=torch.float32, device=x.device)
    if codes.numel():
        blocks = half // BLOCK
        width = min(most_blocks, power_of_two(blocks))
        gated_kernel[num_tokens, cdiv(blocks, width)](
            x, codes, scales, fault_word(x.device), blocks, alpha, limit, **beside(codes, scales, tier), FORM=form,
            BLOCKS=width, FAULT=QUANTIZE_FAULT, num_warps=4, **chained(x.device), **UNFUSED,
        )  # fmt: skip
    return codes, scales
