"""Products with stacked experts in block formats: expert_gemm_q8, expert_gate_q8 and expert_gemm, all portable.

Few pairs or many is said by sizes that the host knows; who chose whom is read on the device alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import reads_integers_late
from samebits.kernels.triton.lib.devices import ON_AMD
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.int8_blocks import REFUSED
from samebits.kernels.triton.lib.registry import INTERPRETED, implements
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import PREPACK
from samebits.kernels.triton.products.blocks.columns import with_columns
from samebits.kernels.triton.products.blocks.few.experts import expert_gemv_q8
from samebits.kernels.triton.products.blocks.gated import gated_quantized
from samebits.kernels.triton.products.blocks.many.experts import expert_gemm_int8
from samebits.kernels.triton.products.blocks.many.experts_dot import expert_gemm_dot
from samebits.kernels.triton.products.blocks.ops import block_weight, tiled
from samebits.kernels.triton.rows.elementwise import unary
from samebits.kernels.triton.rows.quantize import quantized

MOST_FEW = 64  # pairs up to which reading the weights is all that counts, where no expert has more than a few
MOST_SHARED = 2  # pairs of an expert, on average, up to which that is so
GATE_BLOCKS = 4  # of a program that ends expert_gate_q8
FORMS = {"silu": "silu", "gelu_tanh": "tanh", "clamped": "clamped"}
X_FAULT = fault("expert_gemm", *REFUSED)


def multiplier(num_pairs: int, num_experts: int) -> Callable[..., None]:
    """The launcher for so many pairs; all give the same bits."""
    if num_pairs <= min(MOST_FEW, MOST_SHARED * num_experts):
        return expert_gemv_q8
    return expert_gemm_dot if ON_AMD and not INTERPRETED else expert_gemm_int8


def _product(
    codes: torch.Tensor,
    scales: torch.Tensor,
    weight: Tiled,
    pairs: torch.Tensor,
    seg_indptr: torch.Tensor,
    bias: torch.Tensor | None,
    op: str,
) -> torch.Tensor:
    """float32 [P, N]; the faults are op's."""
    num_experts, n, _ = weight.shape
    y = torch.empty(len(pairs), n, dtype=torch.float32, device=codes.device)
    if y.numel():
        codes, scales, weight = with_columns(codes, scales, weight)
        multiply = multiplier(len(pairs), num_experts)
        bias = None if bias is None else bias.contiguous()
        multiply(codes, scales, weight, pairs.contiguous(), seg_indptr.contiguous(), bias, y, op)
    return y


@implements("expert_gemm_q8", tier=Tier.PORTABLE, prepack=PREPACK)
@reads_integers_late
def expert_gemm_q8_blocks(
    codes: torch.Tensor,
    scales: torch.Tensor,
    weight: Blocks | Tiled,
    pairs: torch.Tensor,
    seg_indptr: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    return _product(codes, scales, tiled(weight), pairs, seg_indptr, bias, "expert_gemm_q8")


@implements("expert_gate_q8", tier=Tier.PORTABLE, prepack=PREPACK)
@reads_integers_late
def expert_gate_q8_blocks(
    codes: torch.Tensor,
    scales: torch.Tensor,
    weight: Blocks | Tiled,
    pairs: torch.Tensor,
    seg_indptr: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    y = _product(codes, scales, tiled(weight), pairs, seg_indptr, bias, "expert_gate_q8")
    return gated_quantized(y, GATE_BLOCKS, FORMS[activation], alpha, limit)


@implements("expert_gemm", tier=Tier.PORTABLE, when=block_weight, prepack=PREPACK)
@reads_integers_late
def expert_gemm_blocks(
    x: torch.Tensor,
    weight: Blocks | Tiled,
    pairs: torch.Tensor,
    seg_indptr: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Every row is quantized once, however many experts read it."""
    codes, scales = quantized(x, X_FAULT)
    y = _product(codes, scales, tiled(weight), pairs, seg_indptr, bias, "expert_gemm")
    return y if x.dtype == y.dtype else unary(y, x.dtype, "cast")
