"""grouped_gemm on block-quantized weights: each segment of tokens finds its weight in device memory."""

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

X_FAULT = fault("grouped_gemm", *REFUSED)
ORDER_FAULT = fault(
    "grouped_gemm", "seg_indptr", "entries that fall or lie outside", "entries that never fall, 0 .. rows of x"
)
RANGE_FAULT = fault("grouped_gemm", "weight_indices", "an index of no weight", "0 .. number of weights - 1")


@implements("grouped_gemm", tier=Tier.PORTABLE, when=block_weight, prepack=PREPACK)
def grouped_gemm_blocks(
    x: torch.Tensor,
    weight: Blocks | Tiled,
    seg_indptr: torch.Tensor,
    weight_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    codes, scales = quantized(x, X_FAULT)
    y = grouped_int8(codes, scales, tiled(weight), seg_indptr, weight_indices, (ORDER_FAULT, RANGE_FAULT))
    return y if x.dtype == y.dtype else unary(y, x.dtype, "cast")
