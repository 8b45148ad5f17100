"""Launches of the block-quantized matrix product on int8 activations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from samebits.core.format import BLOCK
from samebits.kernels.cuda.products.laid_out import laid_out
from samebits.kernels.cuda.products.launch import exact_shape_of, multiply_exact
from samebits.kernels.triton.lib.devices import ON_AMD, multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.grids import folded
from samebits.kernels.triton.lib.registry import INTERPRETED, UNFUSED
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import CHUNK, TILE, plane_views
from samebits.kernels.triton.products.blocks.checks import activation_faults
from samebits.kernels.triton.products.blocks.many.activations import WITH_OFFSETS, arranged
from samebits.kernels.triton.products.blocks.many.dot import gemm_dot
from samebits.kernels.triton.products.blocks.many.terms import KINDS
from samebits.kernels.triton.products.blocks.many.warps import gemm_warps

DOT_TOKENS, DOT_ROWS = 32, 64
MANY_PROGRAMS = 256  # enough to fill a device without groups


@dataclass(frozen=True)
class Shape:
    """How gemm_warps cuts its work.

    row_tiles, token_tiles     a warp owns 16 * row_tiles rows and 8 * token_tiles tokens
    warps                      of a program, with rows of their own
    groups                     of such warps, with the same rows and chunks of K in turn: more warps where rows are few
    rows_ahead, tokens_ahead   blocks loaded before their use
    registers                  at most so many a thread
    lines_ahead                blocks whose lines are asked for before they are loaded
    """

    row_tiles: int
    token_tiles: int
    warps: int
    groups: int = 1
    rows_ahead: int = 0
    tokens_ahead: int = 0
    registers: int | None = None
    lines_ahead: int = 0


def planes_of(weight: Tiled, *, words: bool) -> list[torch.Tensor]:
    """codes, high (in words or bytes), d (float16, bytes of mxfp4), m (float16), sub, msub (bytes).

    What a format lacks is any such tensor.
    """
    views = plane_views(weight)
    codes = views["codes"]
    unit = torch.int32 if words else torch.uint8
    halves = codes.view(torch.float16)
    return [
        codes.view(unit),
        views.get("high", codes).view(unit),
        views["d"] if weight.format.name == "mxfp4" else views["d"].view(torch.float16) if "d" in views else halves,
        views["m"].view(torch.float16) if "m" in views else halves,
        views.get("sub", codes),
        views.get("msub", codes),
    ]


def shape_for(num_tokens: int, num_rows: int, num_blocks: int, device: torch.device) -> Shape:
    """All shapes give the same bits; chosen for an H200."""
    if num_tokens <= 16:
        shape = Shape(1, 2, 2, 4, 8, 8)
    elif num_tokens <= 32:
        shape = Shape(1, 4, 2, 4, 8, 4)
    elif cdiv(num_tokens, 64) * cdiv(num_rows, 32) <= multiprocessors(device):
        # one program a multiprocessor: it may have more registers
        shape = Shape(1, 8, 2, 4, 4, 2, registers=168)
    elif cdiv(num_tokens, 32) * cdiv(num_rows, 128) < MANY_PROGRAMS:
        shape = Shape(1, 8, 2, 4, 4, 1, registers=128)
    else:
        shape = Shape(2, 4, 4, 1, 1, 1, registers=168, lines_ahead=4)
    # groups of warps take whole chunks
    return replace(shape, groups=1) if num_blocks % CHUNK else shape


def gemm_int8(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None, op: str = "gemm_q8"
) -> torch.Tensor:
    """(codes * scales) @ weight^T + bias, float32 [T, N]; codes int8 [T, K], scales float32 [T, K / 32].

    op: whose faults codes and scales that quantize_q8 does not make are.
    """
    num_tokens, (num_rows, k) = codes.shape[0], weight.shape
    nb = k // BLOCK
    y = torch.empty(num_tokens, num_rows, dtype=torch.float32, device=codes.device)
    if y.numel() == 0:
        return y
    if nb == 0:
        return y.zero_() if bias is None else y.copy_(bias)
    if ON_AMD and not INTERPRETED:
        dot(codes, scales, weight, bias, y, op)
        return y
    shape = shape_for(num_tokens, num_rows, nb, codes.device)
    words, sa, asum = arranged(codes, scales, weight.format.name, shape.token_tiles, op)
    multiply(words, sa, asum, weight, bias, y, shape)
    return y


def gemm_streamed(
    codes: torch.Tensor, scales: torch.Tensor, weight: Tiled, bias: torch.Tensor | None, op: str, *, fused: bool = False
) -> torch.Tensor:
    """The same by kernels/cuda, where its `serves` says so; fused: with the fast tier's terms."""
    shape = exact_shape_of(codes.shape[0], weight, codes.device, fused)
    y = torch.empty(codes.shape[0], weight.shape[0], dtype=torch.float32, device=codes.device)
    made = None if weight.format.name in WITH_OFFSETS else laid_out(codes, scales)
    if made is None:
        given = arranged(codes, scales, weight.format.name, shape.nt, op)
    else:
        given = made.words, made.scales, made.scales
    multiply_exact(*given, weight, None if bias is None else bias.float().contiguous(), y, shape)
    return y


def multiply(
    words: torch.Tensor,
    sa: torch.Tensor,
    asum: torch.Tensor,
    weight: Tiled,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    shape: Shape,
) -> None:
    """Fills y [T, N] from arranged activations."""
    num_tokens, (num_rows, k) = y.shape[0], weight.shape
    nb = k // BLOCK
    token_tiles = cdiv(num_tokens, 8 * shape.token_tiles)
    row_groups = cdiv(num_rows, TILE * shape.row_tiles * shape.warps)
    gemm_warps[(token_tiles * row_groups,)](
        words.view(torch.int64),
        sa.view(torch.int64),
        asum.view(torch.int64),
        *planes_of(weight, words=True),
        y if bias is None else bias,
        y,
        weight_scale(weight),
        num_tokens,
        num_rows,
        nb,
        **warp_constants(weight, shape),
        BIAS=bias is not None,
    )


def weight_scale(weight: Tiled) -> float:
    """The factor that all terms of an nvfp4 weight have."""
    return float(np.float32(0.5) * np.float32(weight.scale))


def warp_constants(weight: Tiled, shape: Shape) -> dict[str, Any]:
    """What a kernel on tile_totals is compiled for."""
    return {
        "FORMAT": weight.format.name,
        "KIND": KINDS[weight.format.name],
        "MT": shape.row_tiles,
        "NT": shape.token_tiles,
        "WARPS": shape.warps,
        "GROUPS": shape.groups,
        "ROWS_AHEAD": shape.rows_ahead,
        "TOKENS_AHEAD": shape.tokens_ahead,
        "LINES_AHEAD": shape.lines_ahead,
        "TAIL": weight.shape[-1] // BLOCK % CHUNK != 0,
        "EMULATE": INTERPRETED,
        "num_warps": shape.warps * shape.groups,
        "maxnreg": shape.registers,
        **UNFUSED,
    }


def grouped_int8(
    codes: torch.Tensor,
    scales: torch.Tensor,
    weight: Tiled,
    seg_indptr: torch.Tensor,
    weight_indices: torch.Tensor | None,
    faults: tuple[int, int],
) -> torch.Tensor:
    """Products of segments of tokens with the weights [E, N, K] they name; rows of no segment are zeros.

    faults: for a segment outside the tokens, for an index of no weight.
    """
    y = torch.zeros(codes.shape[0], weight.shape[1], dtype=torch.float32, device=codes.device)
    if y.numel() and codes.shape[1]:
        dot(codes, scales, weight, None, y, None, seg_indptr, weight_indices, faults)
    return y


def dot(
    codes: torch.Tensor,
    scales: torch.Tensor,
    weight: Tiled,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    op: str | None,
    seg_indptr: torch.Tensor | None = None,
    weight_indices: torch.Tensor | None = None,
    faults: tuple[int, int] = (0, 0),
) -> None:
    """Fills y [T, N] by tl.dot: one weight, or those of the segments.

    op: whose faults codes and scales that quantize_q8 does not make are; None where they come from there.
    """
    num_tokens, num_rows = y.shape
    num_segments = 0 if seg_indptr is None else seg_indptr.shape[0] - 1
    # a segment may begin a tile of its own: that many more at the most
    token_tiles = cdiv(num_tokens, DOT_TOKENS) + num_segments
    gemm_dot[folded(cdiv(num_rows, DOT_ROWS) + (op is not None), token_tiles)](
        codes,
        scales,
        *planes_of(weight, words=False),
        y if bias is None else bias,
        y,
        codes if seg_indptr is None else seg_indptr,
        codes if weight_indices is None else weight_indices,
        fault_word(codes.device),
        *faults,
        codes.stride(0),
        scales.stride(0),
        weight_scale(weight),
        num_tokens,
        num_rows,
        codes.shape[1] // BLOCK,
        num_segments,
        weight.shape[0],
        FORMAT=weight.format.name,
        KIND=KINDS[weight.format.name],
        GROUPED=seg_indptr is not None,
        INDICES=weight_indices is not None,
        BIAS=bias is not None,
        CHECKED=op is not None,
        **activation_faults(op or "gemm_q8"),
        BT=DOT_TOKENS,
        BN=DOT_ROWS,
        **UNFUSED,
    )
