"""head_gemm on block-quantized weights: a head is an expert that every token chooses, see experts.py."""

from __future__ import annotations

import torch

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.int8_blocks import REFUSED
from samebits.kernels.triton.lib.registry import implements
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import PREPACK
from samebits.kernels.triton.products.blocks.experts import expert_product
from samebits.kernels.triton.products.blocks.many.activations import quantized
from samebits.kernels.triton.products.blocks.ops import block_weight, tiled
from samebits.kernels.triton.rows.elementwise import unary

X_FAULT = fault("head_gemm", *REFUSED)


@implements("head_gemm", tier=Tier.PORTABLE, when=block_weight, prepack=PREPACK)
def head_gemm_blocks(x: torch.Tensor, weight: Blocks | Tiled) -> torch.Tensor:
    """Row t * H + h of x and y is a pair of token t and head h."""
    num_tokens, num_heads, k = x.shape
    if x.numel() == 0:
        return torch.zeros(num_tokens, num_heads, weight.shape[1], dtype=x.dtype, device=x.device)
    codes, scales = quantized(x.reshape(-1, k), X_FAULT)
    num_pairs, kind = num_tokens * num_heads, {"dtype": torch.int32, "device": x.device}
    pairs = torch.arange(num_pairs, **kind).view(num_tokens, num_heads).t().reshape(-1)
    ends = torch.arange(0, num_pairs + 1, num_tokens, **kind)
    y = expert_product(codes, scales, tiled(weight), pairs, ends, None, "head_gemm").view(num_tokens, num_heads, -1)
    return y if x.dtype == y.dtype else unary(y, x.dtype, "cast")
