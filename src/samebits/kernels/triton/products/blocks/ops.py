"""The matrix products on block-quantized weights: gemm_q8, gemm_silu_q8 and gemm, all portable."""

from __future__ import annotations

import torch

from samebits.core.tiers import Tier
from samebits.kernels.cuda.products.launch import serves
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.int8_blocks import REFUSED
from samebits.kernels.triton.lib.registry import implements
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import PLANES, PREPACK, tile_weight
from samebits.kernels.triton.products.blocks.columns import with_columns
from samebits.kernels.triton.products.blocks.few.launch import gemv_q8, gemv_silu_q8
from samebits.kernels.triton.products.blocks.gated import SILU_BLOCKS, gated_quantized
from samebits.kernels.triton.products.blocks.many.launch import gemm_int8, gemm_streamed
from samebits.kernels.triton.rows.elementwise import unary
from samebits.kernels.triton.rows.quantize import quantized

MOST_FEW = 8  # tokens up to which reading the weights is all that counts
GEMM_FAULT = fault("gemm", *REFUSED)


def tiled(weight: Blocks | Tiled) -> Tiled:
    return weight if isinstance(weight, Tiled) else tile_weight(weight)


def block_weight(call: OpCall) -> str | None:
    """The products here take weights in block formats."""
    name = call.inputs["weight"].format
    return None if name in PLANES else f"the weight is {name}, not a block format"


@implements("gemm_q8", tier=Tier.PORTABLE, prepack=PREPACK)
def gemm_q8_blocks(
    codes: torch.Tensor, scales: torch.Tensor, weight: Blocks | Tiled, bias: torch.Tensor | None = None
) -> torch.Tensor:
    return _product(codes, scales, tiled(weight), bias, "gemm_q8")


def _product(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None, op: str
) -> torch.Tensor:
    codes, scales, weight = with_columns(codes, scales, weight)
    if serves(codes.shape[0], weight, codes.device):
        return gemm_streamed(codes, scales, weight, bias, op)
    if codes.shape[0] <= MOST_FEW:
        return gemv_q8(codes, scales, weight, bias, op)
    return gemm_int8(codes, scales, weight, bias, op)


@implements("gemm_silu_q8", tier=Tier.PORTABLE, prepack=PREPACK)
def gemm_silu_q8_blocks(
    codes: torch.Tensor, scales: torch.Tensor, weight: Blocks | Tiled
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales, weight = with_columns(codes, scales, tiled(weight))
    if codes.shape[0] <= MOST_FEW and not serves(codes.shape[0], weight, codes.device):
        return gemv_silu_q8(codes, scales, weight)
    return gated_quantized(_product(codes, scales, weight, None, "gemm_silu_q8"), SILU_BLOCKS)


@implements("gemm", tier=Tier.PORTABLE, when=block_weight, prepack=PREPACK)
def gemm_blocks(x: torch.Tensor, weight: Blocks | Tiled, bias: torch.Tensor | None = None) -> torch.Tensor:
    codes, scales = quantized(x, GEMM_FAULT)
    y = gemm_q8_blocks(codes, scales, weight, bias)
    return y if x.dtype == y.dtype else unary(y, x.dtype, "cast")
