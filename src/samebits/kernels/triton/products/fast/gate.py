"""gemm_silu_q8 of many tokens in the fast tier: gate and up are multiplied side by side and end as int8 blocks.

A tile has HALF rows of the gate and the same of up, since `dequantized` lays them out so: what they make never is
float32 in memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.int8_blocks import QUANTIZE_FAULT, int8_blocks
from samebits.kernels.triton.lib.registry import FUSED
from samebits.kernels.triton.lib.rows import fault_where
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.products.dense.descriptors import GROUP, LARGEST, tile_of

HALF = LARGEST.rows // 2  # rows of the gate in a tile


@triton.jit
def _many_gated(
    x_desc,
    w_desc,
    codes_desc,
    scales_ptr,
    row_scale_ptr,
    fault_ptr,
    scale,
    num_tokens,
    H,
    K: tl.constexpr,
    BT: tl.constexpr,
    HALF: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
    FAULT: tl.constexpr,
):
    """Blocks of silu(gate) * up, both (x @ w^T) * (row scale * scale), w in groups of HALF rows of gate and of up."""
    tiles_t, tiles_n = tl.cdiv(num_tokens, BT), H // HALF
    for tile in tl.range(tl.program_id(0), tiles_t * tiles_n, tl.num_programs(0), flatten=True):
        t, n = tile_of(tile, tiles_t, tiles_n, GROUP)
        acc = tl.zeros([BT, 2 * HALF], tl.float32)
        for step in tl.range(0, tl.cdiv(K, BK), num_stages=STAGES):
            x = x_desc.load([t * BT, step * BK])
            w = w_desc.load([n * 2 * HALF, step * BK])
            acc = tl.dot(x, w.T, acc)
        token = t * BT + tl.arange(0, BT)
        factor = (tl.load(row_scale_ptr + token, mask=token < num_tokens, other=0.0) * scale)[:, None]
        gate, up = tl.split(tl.permute(tl.reshape(acc, [BT, 2, HALF]), [0, 2, 1]))
        gate *= factor
        y = settle((gate / (1.0 + tl.exp(-gate))) * (up * factor))
        codes, block_scale, refused = int8_blocks(tl.reshape(y, [BT, HALF // 32, 32]))
        codes_desc.store([t * BT, n * HALF], tl.reshape(codes, [BT, HALF]))
        block = n * (HALF // 32) + tl.arange(0, HALF // 32)
        inside = (token < num_tokens)[:, None] & (block >= 0)[None, :]
        tl.store(scales_ptr + token.to(tl.int64)[:, None] * (H // 32) + block[None, :], block_scale, mask=inside)
        fault_where(fault_ptr, FAULT, refused & inside)


def many_gated(
    x: torch.Tensor, weight: torch.Tensor, row_scale: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes int8 [T, H], scales float32 [T, H / 32]) of float16 x [T, K] and weight [2H, K], which `dequantized` has
    laid out in groups of HALF rows; H is a multiple of HALF, no dimension is 0."""
    (num_tokens, k), half = x.shape, weight.shape[0] // 2
    codes = torch.empty(num_tokens, half, dtype=torch.int8, device=x.device)
    scales = torch.empty(num_tokens, half // BLOCK, dtype=torch.float32, device=x.device)
    tiles = cdiv(num_tokens, LARGEST.tokens) * (half // HALF)
    _many_gated[(min(multiprocessors(x.device), tiles),)](
        TensorDescriptor.from_tensor(x, [LARGEST.tokens, LARGEST.k]),
        TensorDescriptor.from_tensor(weight, [LARGEST.rows, LARGEST.k]),
        TensorDescriptor.from_tensor(codes, [LARGEST.tokens, HALF]),
        scales,
        row_scale,
        fault_word(x.device),
        scale,
        num_tokens,
        half,
        K=k,
        BT=LARGEST.tokens,
        HALF=HALF,
        BK=LARGEST.k,
        GROUP=GROUP,
        STAGES=LARGEST.stages,
        FAULT=QUANTIZE_FAULT,
        num_warps=LARGEST.warps,
        **FUSED,
    )
    return codes, scales
