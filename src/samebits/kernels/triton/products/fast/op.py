"""gemm_q8 and gemm_silu_q8 with float16 tensor cores: fast.

One token takes the exact kernel, which reads each weight once. From two tokens on kernels/cuda serves where it can, up
to its MOST_TOKENS. Elsewhere up to MOST_ALONE take the exact kernels, and up to MOST_SOME weights become float16 in
registers; beyond that they do so in memory, once for all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.core.tiers import Tier
from samebits.kernels.cuda.products.laid_out import carried_values
from samebits.kernels.cuda.products.launch import (
    MOST_TOKENS,
    fast_shape_of,
    gated_shape_of,
    multiply_fast,
    multiply_gated,
    serves,
    takes_fused,
)
from samebits.kernels.cuda.products.shapes import FastShape, WideShape
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.devices import ON_AMD, PTX_HERE
from samebits.kernels.triton.lib.registry import FUSED, INTERPRETED, implements
from samebits.kernels.triton.lib.rows import store_narrow
from samebits.kernels.triton.lib.scratch import counters
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import PREPACK, tile_weight
from samebits.kernels.triton.products.blocks.gated import SILU_BLOCKS, gated_quantized
from samebits.kernels.triton.products.blocks.many.launch import gemm_int8, gemm_streamed
from samebits.kernels.triton.products.dense.descriptors import many
from samebits.kernels.triton.products.fast.activations import fragments, widened
from samebits.kernels.triton.products.fast.dequant import SERVED, dequantized, planes_of, value_power, values
from samebits.kernels.triton.products.fast.gate import HALF, many_gated

MOST_ALONE = 8
MOST_SOME = 128
PROGRAMS = 384  # programs that fill a device: K is split until there are so many
MOST_SPLITS = 4


@triton.jit
def _some(
    data_ptr,
    high_at,
    d_at,
    m_at,
    sub_at,
    msub_at,
    x_ptr,
    row_scale_ptr,
    bias_ptr,
    y_ptr,
    part_ptr,
    count_ptr,
    num_tokens,
    N,
    scale,
    power,
    NB: tl.constexpr,
    FORMAT: tl.constexpr,
    BT: tl.constexpr,
    BN: tl.constexpr,
    BLOCKS: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    PTX: tl.constexpr,
):
    """y = (x @ w^T) * (row scale * scale) + bias, x float16 [2][tokens][K / 2] as `widened` makes it.

    w is computed times `power`, which scale takes back.
    With SPLITS programs for a tile, each sums a part of K, and the last one to come adds the parts in order.
    """
    planes = (high_at, d_at, m_at, sub_at, msub_at)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    token = tl.program_id(1) * BT + tl.arange(0, BT)
    x_row = x_ptr + token.to(tl.int64) * (NB * 16)
    acc = tl.zeros([BN, BT], tl.float32)
    LENGTH: tl.constexpr = (NB + SPLITS * BLOCKS - 1) // (SPLITS * BLOCKS) * BLOCKS
    begin = tl.program_id(2) * LENGTH
    for step in tl.range(0, LENGTH, BLOCKS, num_stages=STAGES):
        first = begin + step
        low, high = values(data_ptr, planes, row, first, N, power, NB, FORMAT, BLOCKS, PTX)
        element = first * 16 + tl.arange(0, BLOCKS * 16)
        inside = (token < num_tokens)[:, None] & (element < NB * 16)[None, :]
        place = x_row[:, None] + element[None, :]
        x_low = tl.load(place, mask=inside, other=0.0)
        x_high = tl.load(place + num_tokens * (NB * 16), mask=inside, other=0.0)
        acc = tl.dot(low, tl.trans(x_low), acc)
        acc = tl.dot(high, tl.trans(x_high), acc)
    if SPLITS > 1:
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        place = part_ptr + tile * (SPLITS * BN * BT) + tl.arange(0, BN)[:, None] * BT + tl.arange(0, BT)[None, :]
        tl.store(place + tl.program_id(2) * (BN * BT), acc)
        tl.debug_barrier()
        arrived = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel")
        if arrived == SPLITS - 1:
            acc = tl.zeros([BN, BT], tl.float32)
            for part in tl.static_range(SPLITS):
                acc += tl.load(place + part * (BN * BT), cache_modifier=".cg")
            tl.store(count_ptr + tile, 0)
            _finish(acc, row, token, row_scale_ptr, bias_ptr, y_ptr, num_tokens, N, scale)
    else:
        _finish(acc, row, token, row_scale_ptr, bias_ptr, y_ptr, num_tokens, N, scale)


@triton.jit
def _finish(acc, row, token, row_scale_ptr, bias_ptr, y_ptr, num_tokens, N, scale):
    """Scales the sums [rows, tokens], adds the bias and stores them."""
    y = tl.trans(acc) * (tl.load(row_scale_ptr + token, mask=token < num_tokens, other=0.0) * scale)[:, None]
    if bias_ptr is not None:
        y += tl.load(bias_ptr + row, mask=row < N, other=0.0).to(tl.float32)[None, :]
    at = token.to(tl.int64)[:, None] * N + row[None, :]
    store_narrow(y_ptr + at, y, (token < num_tokens)[:, None] & (row < N)[None, :])


@dataclass(frozen=True)
class Some:
    """Tiles of the kernel that unpacks in registers; `blocks` of 32 a step."""

    tokens: int
    rows: int
    blocks: int
    stages: int
    warps: int


def some_for(num_tokens: int, num_rows: int) -> Some:
    """The tiles for so many tokens: more rows a tile where that still fills the device."""
    if num_tokens > 32:
        return Some(64, 128, 4, 3, 8) if num_rows >= 16384 else Some(64, 64, 4, 3, 4)
    return Some(32 if num_tokens > 16 else 16, 64, 4, 4, 4)


def _restoring_scale(weight: Tiled) -> float:
    """Return what sums of products with a weight's float16 values are multiplied by."""
    return float(weight.scale) / value_power(weight)


def _some_tokens(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None, op_name: str
) -> torch.Tensor:
    num_tokens, (n, k) = codes.shape[0], weight.shape
    x, row_scale = widened(codes, scales, op_name, "halves")
    y = torch.empty(num_tokens, n, dtype=torch.float32, device=codes.device)
    tiles = some_for(num_tokens, n)
    grid = (cdiv(n, tiles.rows), cdiv(num_tokens, tiles.tokens))
    splits = max(1, min(MOST_SPLITS, PROGRAMS // (grid[0] * grid[1])))
    size = grid[0] * grid[1] * splits * tiles.rows * tiles.tokens if splits > 1 else 0
    parts = torch.empty(size, dtype=torch.float32, device=codes.device)
    _some[(*grid, splits)](
        weight.data,
        *planes_of(weight),
        x,
        row_scale,
        bias,
        y,
        parts,
        counters(codes.device),
        num_tokens,
        n,
        _restoring_scale(weight),
        value_power(weight),
        NB=k // BLOCK,
        FORMAT=weight.format.name,
        BT=tiles.tokens,
        BN=tiles.rows,
        BLOCKS=tiles.blocks,
        SPLITS=splits,
        STAGES=tiles.stages,
        PTX=PTX_HERE,
        num_warps=tiles.warps,
        **FUSED,
    )
    return y


def _fragments(
    codes: torch.Tensor, scales: torch.Tensor, op_name: str, shape: FastShape | WideShape
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a form multiplies: carried along by the codes, or made of them."""
    is_wide = isinstance(shape, WideShape)
    made = carried_values(codes, scales, shape.nt) if is_wide else None
    return (made.x, made.row_scales) if made else fragments(codes, scales, op_name, shape.nt, is_wide)


def _rows(codes: torch.Tensor, scales: torch.Tensor, op_name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(float16 [T, K], float32 [T]): carried along by the codes, or made of them."""
    made = carried_values(codes, scales, 0)
    return (made.x, made.row_scales) if made else widened(codes, scales, op_name, "rows")


def _streamed_tokens(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None, op_name: str
) -> torch.Tensor:
    num_tokens = codes.shape[0]
    shape = fast_shape_of(num_tokens, weight, codes.device)
    x, row_scale = _fragments(codes, scales, op_name, shape)
    y = torch.empty(num_tokens, weight.shape[0], dtype=torch.float32, device=codes.device)
    multiply_fast(x, row_scale, weight, None if bias is None else bias.float().contiguous(), y, shape)
    return y


def _many_tokens(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None, op_name: str
) -> torch.Tensor:
    num_tokens, n = codes.shape[0], weight.shape[0]
    x, row_scale = _rows(codes, scales, op_name)
    # Rows of the result lie a multiple of 16 bytes apart, as descriptors ask.
    y = torch.empty(num_tokens, -(-n // 4) * 4, dtype=torch.float32, device=codes.device)[:, :n]
    many(x, dequantized(weight), bias, y, row_scale, _restoring_scale(weight))
    return y.contiguous()


def _many_gate(codes: torch.Tensor, scales: torch.Tensor, weight: Tiled) -> tuple[torch.Tensor, torch.Tensor] | None:
    """gemm_silu_q8 of many tokens, for rows that fill tiles."""
    if codes.shape[0] <= MOST_SOME or INTERPRETED or ON_AMD or weight.is_faint or weight.shape[0] % (2 * HALF):
        return None
    x, row_scale = _rows(codes, scales, "gemm_silu_q8")
    return many_gated(x, dequantized(weight, HALF), row_scale, _restoring_scale(weight))


def _streamed_gate(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """gemm_silu_q8 in one launch, for as many tokens and rows as kernels/cuda has a form for."""
    num_tokens, device = codes.shape[0], codes.device
    if not _is_streamed(codes, weight) or weight.is_faint or takes_fused(num_tokens, weight):
        return None
    shape = gated_shape_of(num_tokens, weight, device)
    if shape is None:
        return None
    x, row_scale = _fragments(codes, scales, "gemm_silu_q8", shape)
    half = weight.shape[0] // 2
    y_codes = torch.empty(num_tokens, half, dtype=torch.int8, device=device)
    y_scales = torch.empty(num_tokens, half // BLOCK, dtype=torch.float32, device=device)
    multiply_gated(x, row_scale, weight, y_codes, y_scales, shape)
    return y_codes, y_scales


def _is_streamed(codes: torch.Tensor, weight: Tiled) -> bool:
    return codes.shape[0] <= MOST_TOKENS and serves(codes.shape[0], weight, codes.device)


def _product(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None, op_name: str
) -> torch.Tensor:
    """float32 [T, N], neither of them 0, for more than MOST_ALONE tokens, or as many as kernels/cuda serves."""
    if _is_streamed(codes, weight):
        is_fused = takes_fused(codes.shape[0], weight)
        if is_fused or weight.is_faint:
            return gemm_streamed(codes, scales, weight, bias, op_name, fused=is_fused)
        return _streamed_tokens(codes, scales, weight, bias, op_name)
    if weight.is_faint:
        return gemm_int8(codes, scales, weight, bias, op_name)
    if codes.shape[0] <= MOST_SOME or INTERPRETED:
        return _some_tokens(codes, scales, weight, bias, op_name)
    return _many_tokens(codes, scales, weight, bias, op_name)


def within_float16(call: OpCall) -> str | None:
    """Values become float16 here, and a power of two may be none; some formats have only the portable kernels."""
    name = call.inputs["weight"].format
    if call.inputs["weight"].shape[-1] == 0:
        return "a weight without columns"
    if name == "mxfp4":
        return "mxfp4's scales go beyond float16"
    return None if name in SERVED else f"{name} has no values in float16 here"


def _takes_exact(num_tokens: int, weight: Tiled, device: torch.device) -> bool:
    """Whether so few tokens take Triton's exact kernels."""
    return not weight.shape[0] or (num_tokens <= MOST_ALONE and not serves(num_tokens, weight, device))


def _tiled(weight: Tiled | Blocks) -> Tiled:
    return weight if isinstance(weight, Tiled) else tile_weight(weight)


@implements("gemm_q8", tier=Tier.FAST, when=within_float16, prepack=PREPACK)
def gemm_q8_fast(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled | Blocks, bias: torch.Tensor | None = None
) -> torch.Tensor:
    weight = _tiled(weight)
    if _takes_exact(codes.shape[0], weight, codes.device):
        from samebits.kernels.triton.products.blocks.few.launch import gemv_q8

        return gemv_q8(codes, scales, weight, bias)
    return _product(codes, scales, weight, bias, "gemm_q8")


@implements("gemm_silu_q8", tier=Tier.FAST, when=within_float16, prepack=PREPACK)
def gemm_silu_q8_fast(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled | Blocks
) -> tuple[torch.Tensor, torch.Tensor]:
    weight = _tiled(weight)
    if _takes_exact(codes.shape[0], weight, codes.device):
        from samebits.kernels.triton.products.blocks.few.launch import gemv_silu_q8

        return gemv_silu_q8(codes, scales, weight)
    gated = _streamed_gate(codes, scales, weight) or _many_gate(codes, scales, weight)
    if gated is not None:
        return gated
    return gated_quantized(_product(codes, scales, weight, None, "gemm_silu_q8"), SILU_BLOCKS, tier=Tier.FAST)
