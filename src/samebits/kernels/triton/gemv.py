"""Block-quantized products for a few tokens: the weights are read once, at the speed of memory.

One token, and any number on devices without NVIDIA's int8 instruction: gemv_one.py. Two to eight: gemv_tokens.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton

from samebits.core.format import BLOCK
from samebits.kernels.triton.chaining import chained
from samebits.kernels.triton.faults import fault, fault_word
from samebits.kernels.triton.gemv_one import gemv_kernel, gemv_silu_kernel
from samebits.kernels.triton.gemv_terms import PTX_HERE, SHIFTS
from samebits.kernels.triton.gemv_tokens import tokens_kernel, tokens_silu_kernel
from samebits.kernels.triton.registry import UNFUSED
from samebits.kernels.triton.scratch import counters
from samebits.kernels.triton.tensors import Tiled
from samebits.kernels.triton.weights import CHUNK, TILE, num_tiles, tiled_offsets

MAX_TOKENS = 8
RESIDENT_TILES = 264  # two programs of four warps on each of 132 multiprocessors: what q8_0's registers allow
REFUSED = fault("quantize_q8", "x", "NaN, Inf or a magnitude above 2^126", "finite values")


def one_token_config(weight: Tiled) -> dict[str, Any]:
    """Tiles and chunks of a program: two warps a tile where q8_0 has more tiles than fit an H200 at once with four."""
    many = weight.format.name == "q8_0" and num_tiles(weight.shape) > RESIDENT_TILES
    return {"G": 1, "C": 4 if many else 8}


def tokens_config(weight: Tiled) -> dict[str, Any]:
    """Chunks, and so warps, of a program for two to eight tokens."""
    return {"C": 8}


def _constants(weight: Tiled, config: dict[str, Any], device: torch.device) -> dict[str, Any]:
    nb, chunks = weight.shape[-1] // BLOCK, config["C"]
    return {
        "NB": nb,
        "FORMAT": weight.format.name,
        "SHIFT": SHIFTS.get(weight.format.name, 0),
        "MASK": 2 if nb % CHUNK else int(nb % (CHUNK * chunks) > 0),
        **config,
        **chained(device),
        **UNFUSED,
    }


def _inputs(codes: torch.Tensor, scales: torch.Tensor, weight: Tiled) -> tuple[torch.Tensor, ...]:
    return codes.contiguous().view(torch.int32), scales.contiguous(), weight.data


def _layout(weight: Tiled) -> tuple[tuple[int, ...], float]:
    """Where the planes are, and the factor that all of an nvfp4 weight's terms have."""
    return tiled_offsets(weight), float(np.float32(0.5) * np.float32(weight.scale))


def _parts(weight: Tiled, num_tokens: int, device: torch.device) -> torch.Tensor:
    """Room for the chunk sums of all rows."""
    chunks = triton.cdiv(weight.shape[-1], BLOCK * CHUNK)
    return torch.empty(num_tiles(weight.shape) * TILE * chunks * num_tokens, dtype=torch.float32, device=device)


def gemv_q8(codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None = None) -> torch.Tensor:
    """float32 [T, N] of int8 blocks [T, K], T at most MAX_TOKENS, and a weight [N, K]: the op gemm_q8."""
    num_tokens, n, device = codes.shape[0], weight.shape[0], codes.device
    y = torch.empty(num_tokens, n, dtype=torch.float32, device=device)
    if not num_tokens or not n:
        return y
    given = (*_inputs(codes, scales, weight), scales if bias is None else bias)
    tiles = num_tiles(weight.shape)
    if num_tokens > 1 and PTX_HERE:
        constants = _constants(weight, tokens_config(weight), device)
        parts = _parts(weight, num_tokens, device)
        tokens_kernel[tiles,](
            *given,
            parts,
            y,
            *_layout(weight),
            n,
            num_tokens,
            BIAS=bias is not None,
            num_warps=constants["C"],
            **constants,
        )
    else:
        constants = _constants(weight, one_token_config(weight), device)
        gemv_kernel[triton.cdiv(tiles, constants["G"]), num_tokens](
            *given,
            y,
            *_layout(weight),
            n,
            tiles,
            BIAS=bias is not None,
            PTX=PTX_HERE,
            num_warps=max(1, constants["G"] * constants["C"] // 2),
            **constants,
        )
    return y


def gemv_silu_q8(codes: torch.Tensor, scales: torch.Tensor, weight: Tiled) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 [T, H] and float32 [T, H / 32] of int8 blocks [T, K] and a weight [2H, K]: the op gemm_silu_q8."""
    num_tokens, half, device = codes.shape[0], weight.shape[0] // 2, codes.device
    y_codes = torch.empty(num_tokens, half, dtype=torch.int8, device=device)
    y_scales = torch.empty(num_tokens, half // BLOCK, dtype=torch.float32, device=device)
    if not num_tokens or not half:
        return y_codes, y_scales
    given = _inputs(codes, scales, weight)
    sums = torch.empty(MAX_TOKENS * 2 * half, dtype=torch.float32, device=device)
    results = (sums, counters(device), y_codes, y_scales, fault_word(device), *_layout(weight), half)
    blocks = half // BLOCK
    if num_tokens > 1 and PTX_HERE:
        constants = _constants(weight, tokens_config(weight), device)
        tokens_silu_kernel[blocks * 4,](
            *given,
            _parts(weight, num_tokens, device),
            *results,
            num_tokens,
            FAULT=REFUSED,
            num_warps=constants["C"],
            **constants,
        )
    else:
        constants = _constants(weight, one_token_config(weight), device)
        gemv_silu_kernel[blocks * (4 // constants["G"]), num_tokens](
            *given,
            *results,
            FAULT=REFUSED,
            PTX=PTX_HERE,
            num_warps=max(1, constants["G"] * constants["C"] // 2),
            **constants,
        )
    return y_codes, y_scales
