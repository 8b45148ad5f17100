"""Block-quantized products for a few tokens: the weights are read once, at the speed of memory.

One token, and any number on devices without NVIDIA's int8 instruction: one.py. Two to eight: tokens.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import ON_AMD, PTX_HERE, multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.int8_blocks import QUANTIZE_FAULT
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.scratch import counters
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import CHUNK, TILE, num_tiles, tiled_offsets
from samebits.kernels.triton.products.blocks.checks import activation_faults
from samebits.kernels.triton.products.blocks.few.one import gemv_kernel
from samebits.kernels.triton.products.blocks.few.shared import activations_asm, exchange_asm
from samebits.kernels.triton.products.blocks.few.tokens import tokens_kernel, tokens_silu_kernel
from samebits.kernels.triton.products.blocks.gated import gated_quantized
from samebits.kernels.triton.products.blocks.terms import SHIFTS

MAX_TOKENS = 8
TOKENS_CHUNKS = 8  # and so warps of a program for two to eight tokens
# Programs of one.py that a multiprocessor holds at once: of formats that so many programs, which stay, read sooner than
# one program for each tile.
RESIDENT = {"q4_0": 3, "q4_1": 4, "q4_k": 2, "q6_k": 2}
FEW_REGISTERS = ("q4_0", "nvfp4", "mxfp4")  # formats whose programs of 16 chunks fit also where K has several groups
SMALL_GROUPS = ("q4_1", "nvfp4")  # formats that are read sooner in groups of 8 chunks where 16 would be all of K
SILU_BLOCKS = 4  # of a program that ends gemm_silu_q8


def group_chunks(weight: Tiled) -> int:
    """Chunks of a group: measured on an H200, where two or three programs of 16 chunks must fit at once."""
    chunks, name = cdiv(weight.shape[-1], BLOCK * CHUNK), weight.format.name
    wide = PTX_HERE and (name not in SMALL_GROUPS if chunks <= 16 else name in FEW_REGISTERS)
    return min(16 if wide else 8, max(4, power_of_two(chunks)))


def one_token_programs(weight: Tiled, device: torch.device) -> int:
    """Programs that share the tiles of a weight [N, K]."""
    tiles, resident = num_tiles(weight.shape), RESIDENT.get(weight.format.name)
    if resident and weight.shape[-1] > 8 * BLOCK * CHUNK:
        return min(tiles, resident * multiprocessors(device) - 1)  # and one that looks for faults
    return tiles


def constants(weight: Tiled, chunks: int, op: str, device: torch.device) -> dict[str, Any]:
    """What every kernel of this folder is compiled for."""
    nb = weight.shape[-1] // BLOCK
    return {
        "NB": nb,
        "FORMAT": weight.format.name,
        "SHIFT": SHIFTS.get(weight.format.name, 0),
        "MASK": 2 if nb % CHUNK else int(nb % (CHUNK * chunks) > 0),
        "C": chunks,
        **activation_faults(op),
        **chained(device),
        **UNFUSED,
    }


def inputs(codes: torch.Tensor, scales: torch.Tensor, weight: Tiled) -> tuple[torch.Tensor, ...]:
    """Codes as words, scales and the weight's bytes, dense."""
    return codes.contiguous().view(torch.int32), scales.contiguous(), weight.data


def layout(weight: Tiled) -> tuple[tuple[int, ...], float]:
    """Where the planes are, and the factor that all of an nvfp4 weight's terms have."""
    return tiled_offsets(weight), float(np.float32(0.5) * np.float32(weight.scale))


def _parts(weight: Tiled, num_tokens: int, device: torch.device) -> torch.Tensor:
    """Room for the chunk sums of all rows."""
    chunks = cdiv(weight.shape[-1], BLOCK * CHUNK)
    return torch.empty(num_tiles(weight.shape) * TILE * chunks * num_tokens, dtype=torch.float32, device=device)


def gemv_q8(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None = None, op: str = "gemm_q8"
) -> torch.Tensor:
    """float32 [T, N] of int8 blocks [T, K], at most MAX_TOKENS, and a weight [N, K]: gemm_q8, or part of another op."""
    num_tokens, n, device = codes.shape[0], weight.shape[0], codes.device
    y = torch.empty(num_tokens, n, dtype=torch.float32, device=device)
    if not num_tokens or not n:
        return y
    tiles, nb = num_tiles(weight.shape), weight.shape[-1] // BLOCK
    given = (*inputs(codes, scales, weight), scales if bias is None else bias)
    rest = (y, fault_word(device), *layout(weight), n)
    if num_tokens > 1 and not ON_AMD:
        tokens_kernel[tiles + 1,](
            *given,
            _parts(weight, num_tokens, device),
            *rest,
            num_tokens,
            BIAS=bias is not None,
            num_warps=TOKENS_CHUNKS,
            **constants(weight, TOKENS_CHUNKS, op, device),
        )
        return y
    chunks, programs = group_chunks(weight), one_token_programs(weight, device)
    gemv_kernel[programs + 1, num_tokens](
        *given,
        *rest,
        tiles,
        BIAS=bias is not None,
        ONE=programs == tiles and nb <= CHUNK * chunks,
        ACTIVATIONS=activations_asm(nb, chunks * TILE),
        EXCHANGE=exchange_asm(chunks),
        PTX=PTX_HERE,
        num_warps=chunks // 2,
        **constants(weight, chunks, op, device),
    )
    return y


def gemv_silu_q8(codes: torch.Tensor, scales: torch.Tensor, weight: Tiled) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 [T, H] and float32 [T, H / 32] of int8 blocks [T, K] and a weight [2H, K]: the op gemm_silu_q8."""
    num_tokens, half, device = codes.shape[0], weight.shape[0] // 2, codes.device
    y_codes = torch.empty(num_tokens, half, dtype=torch.int8, device=device)
    y_scales = torch.empty(num_tokens, half // BLOCK, dtype=torch.float32, device=device)
    if not num_tokens or not half:
        return y_codes, y_scales
    blocks, op = half // BLOCK, "gemm_silu_q8"
    results = (y_codes, y_scales, fault_word(device))
    if num_tokens == 1 or ON_AMD:
        y = gemv_q8(codes, scales, weight, op=op)
        return gated_quantized(y, SILU_BLOCKS)
    tokens_silu_kernel[blocks * 4 + 1,](
        *inputs(codes, scales, weight),
        _parts(weight, num_tokens, device),
        torch.empty(MAX_TOKENS * 2 * half, dtype=torch.float32, device=device),
        counters(device),
        *results,
        *layout(weight),
        half,
        num_tokens,
        FAULT=QUANTIZE_FAULT,
        num_warps=TOKENS_CHUNKS,
        **constants(weight, TOKENS_CHUNKS, op, device),
    )
    return y_codes, y_scales
