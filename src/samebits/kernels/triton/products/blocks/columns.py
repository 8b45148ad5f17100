"""Products of no columns: K is 0, every sum is of nothing, and results are +0 or the bias."""

from __future__ import annotations

import torch

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import tiled_bytes


def with_columns(codes: torch.Tensor, scales: torch.Tensor, weight: Tiled) -> tuple[torch.Tensor, torch.Tensor, Tiled]:
    """Return the operands of a product, int8 blocks [T, K] and a weight [..., N, K], with K of at least one block.

    Operands without columns get one block of zeros, whose term is +0: kernels need no case of their own.
    """
    if weight.shape[-1]:
        return codes, scales, weight
    rows, width = codes.shape[0], max(weight.format.block_len, BLOCK)
    shape = (*weight.shape[:-1], width)
    data = torch.zeros(tiled_bytes(weight.format, shape), dtype=torch.uint8, device=weight.data.device)
    return codes.new_zeros(rows, width), scales.new_zeros(rows, width // BLOCK), Tiled(weight.format, shape, data)
