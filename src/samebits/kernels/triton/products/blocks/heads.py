"""head_gemm on block-quantized weights: a head's rows are a segment of their own, by many/dot.py."""

from __future__ import annotations

import torch

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.int8_blocks import REFUSED
from samebits.kernels.triton.lib.registry import implements
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import PREPACK
from samebits.kernels.triton.products.blocks.many.launch import grouped_int8
from samebits.kernels.triton.products.blocks.ops import block_weight, tiled
from samebits.kernels.triton.rows.elementwise import unary
from samebits.kernels.triton.rows.quantize import quantized

X_FAULT = fault("head_gemm", *REFUSED)
NO_FAULTS = (0, 0)  # segments are made here


def _by_heads(x: torch.Tensor) -> torch.Tensor:
    """[T, H, ...] as [H * T, ...]; of one token there is nothing to move."""
    return x.transpose(0, 1).reshape(-1, x.shape[-1])


@implements("head_gemm", tier=Tier.PORTABLE, when=block_weight, prepack=PREPACK)
def head_gemm_blocks(x: torch.Tensor, weight: Blocks | Tiled) -> torch.Tensor:
    num_tokens, num_heads = x.shape[:2]
    if x.numel() == 0:
        return torch.zeros(num_tokens, num_heads, weight.shape[1], dtype=x.dtype, device=x.device)
    codes, scales = quantized(_by_heads(x), X_FAULT)
    ends = torch.arange(0, num_heads * num_tokens + 1, num_tokens, dtype=torch.int32, device=x.device)
    y = grouped_int8(codes, scales, tiled(weight), ends, None, NO_FAULTS)
    y = y.view(num_heads, num_tokens, -1).transpose(0, 1).contiguous()
    return y if x.dtype == y.dtype else unary(y, x.dtype, "cast")
