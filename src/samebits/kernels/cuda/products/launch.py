"""Launches of fast.cu, wide.cu and exact.cu, and the devices and weights that they serve."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from samebits.kernels.ahead import is_noting, note
from samebits.kernels.cuda.hopper import ARCH, is_served
from samebits.kernels.cuda.modules import Function, pointer
from samebits.kernels.cuda.nvrtc import CudaBuild
from samebits.kernels.cuda.products.shapes import (
    ExactShape,
    FastShape,
    WideShape,
    exact_shape,
    fast_shape,
    gated_shape,
    token_tiles,
    wide_shape,
)
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.int8_blocks import QUANTIZE_FAULT
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import num_tiles, power_offset, tiled_offsets
from samebits.ops.quantize import LARGEST_AMAX, SMALLEST_AMAX

HERE = Path(__file__).parent
FORMATS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "nvfp4", "mxfp4")
MOST_TOKENS = 128  # of fast.cu and wide.cu
# Tokens up to which exact.cu serves the fast tier too; those of other formats are 16.
FUSED_TOKENS = {"q4_1": 8, "q5_1": 8, "q4_k": 0, "q5_k": 0, "q6_k": 8, "nvfp4": 0}
FEW_TOKENS, FEW_BYTES = 8, 4 << 20  # so few tokens of so small a weight are served sooner by one launch of Triton's


def serves(num_tokens: int, weight: Tiled, device: torch.device) -> bool:
    """Whether a portable product of so many tokens is launched from here, or a fast one of up to MOST_TOKENS."""
    if num_tokens <= 1 or weight.format.name not in FORMATS or 0 in weight.shape:
        return False
    return (num_tokens > FEW_TOKENS or weight.data.numel() >= FEW_BYTES) and is_served(device)


Shape = FastShape | WideShape | ExactShape
SOURCES = {FastShape: "fast.cu", WideShape: "wide.cu", ExactShape: "exact.cu"}


def build_of(shape: Shape, format_name: str) -> CudaBuild:
    """A form of a kernel here."""
    return CudaBuild(HERE / SOURCES[type(shape)], (("FORMAT", format_name), *shape.defines), ARCH)


@cache
def _function(shape: Shape, format_name: str, device: torch.device) -> Function:
    build = build_of(shape, format_name)
    name, cluster = f"product_{build.source.stem}", shape.parts if isinstance(shape, WideShape) else 1
    return Function.on(device, build.code(), name, shape.threads, shape.shared_bytes(format_name), cluster)


def _launch(shape: Shape, weight: Tiled, grid: tuple[int, int], arguments: Sequence[Any]) -> None:
    """Launches a form, or notes that it is needed."""
    if is_noting():
        note(build_of(shape, weight.format.name))
    else:
        _function(shape, weight.format.name, weight.data.device).launch(grid, arguments)


class _Offsets(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("codes", "high", "d", "m", "sub", "msub", "power"))


class _Gated(ctypes.Structure):
    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("fault", ctypes.c_void_p),
        ("fault_number", ctypes.c_int),
        ("smallest", ctypes.c_float),
        ("largest", ctypes.c_float),
    )


def _multiply(
    x: torch.Tensor,
    row_scale: torch.Tensor,
    weight: Tiled,
    bias: torch.Tensor | None,
    y: torch.Tensor | None,
    shape: FastShape | WideShape,
    gated: tuple[_Gated, ...] = (),
) -> None:
    (num_rows, k), device = weight.shape, x.device
    if isinstance(shape, WideShape):
        at_once = multiprocessors(device) // shape.parts
        blocks = min(-(-num_tiles(weight.shape) // shape.tiles), at_once) * shape.parts
    else:
        blocks = min(-(-num_tiles(weight.shape) // shape.mt), multiprocessors(device))
    _launch(
        shape,
        weight,
        (blocks, 1),
        (
            pointer(weight.data),
            _Offsets(*tiled_offsets(weight), power_offset(weight)),
            pointer(x),
            pointer(row_scale),
            pointer(bias),
            pointer(y),
            ctypes.c_float(float(weight.scale)),
            ctypes.c_int(row_scale.shape[0]),
            ctypes.c_int(num_rows),
            ctypes.c_int(k // 32),
            *gated,
        ),
    )


def multiply_fast(
    x: torch.Tensor,
    row_scale: torch.Tensor,
    weight: Tiled,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    shape: FastShape | WideShape,
) -> None:
    """Fills y [T, N]; x float16 in the order of the shape, padded to `shape.nt` tiles of 8 tokens."""
    _multiply(x, row_scale, weight, bias, y, shape, (_Gated(),) if isinstance(shape, WideShape) else ())


def multiply_gated(
    x: torch.Tensor, row_scale: torch.Tensor, weight: Tiled, codes: torch.Tensor, scales: torch.Tensor, shape: WideShape
) -> None:
    """Fills codes [T, N / 2] and scales [T, N / 64]: quantize_q8 of silu(gate) * up; the shape is gated."""
    fault = pointer(fault_word(x.device))
    limits = float(SMALLEST_AMAX), float(LARGEST_AMAX)
    gated = _Gated(codes.data_ptr(), scales.data_ptr(), fault, QUANTIZE_FAULT, *limits)
    _multiply(x, row_scale, weight, None, None, shape, (gated,))


def multiply_exact(
    words: torch.Tensor,
    sa: torch.Tensor,
    asum: torch.Tensor,
    weight: Tiled,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    shape: ExactShape,
) -> None:
    """Fills y [T, N] from activations arranged in tiles of 8 * shape.nt tokens."""
    (num_rows, k), device = weight.shape, words.device
    blocks = -(-num_tiles(weight.shape) // shape.rt)
    _launch(
        shape,
        weight,
        (min(blocks, multiprocessors(device)), -(-y.shape[0] // (8 * shape.nt))),
        (
            pointer(weight.data),
            _Offsets(*tiled_offsets(weight), power_offset(weight)),
            pointer(words),
            pointer(sa),
            pointer(asum),
            pointer(bias),
            pointer(y),
            ctypes.c_float(0.5 * float(weight.scale)),
            ctypes.c_int(y.shape[0]),
            ctypes.c_int(num_rows),
            ctypes.c_int(k // 32),
        ),
    )


def fast_shape_of(num_tokens: int, weight: Tiled, device: torch.device) -> FastShape | WideShape:
    """The form of wide.cu, or else of fast.cu, for so many tokens, 1 .. MOST_TOKENS."""
    nt, tiles, name = token_tiles(num_tokens), num_tiles(weight.shape), weight.format.name
    count = multiprocessors(device)
    return wide_shape(nt, tiles, weight.shape[1] // 32, name, count) or fast_shape(nt, tiles, name, count)


def gated_shape_of(num_tokens: int, weight: Tiled, device: torch.device) -> WideShape | None:
    """The form of wide.cu that ends a gated layer's first product, if it has one for so many tokens."""
    nt, tiles, name = token_tiles(num_tokens), num_tiles(weight.shape), weight.format.name
    return gated_shape(nt, tiles, weight.shape[1] // 32, name, multiprocessors(device))


def takes_fused(num_tokens: int, weight: Tiled) -> bool:
    """Whether exact.cu, with fused terms, serves so few tokens sooner than fast.cu."""
    return num_tokens <= FUSED_TOKENS.get(weight.format.name, 16)


def exact_shape_of(num_tokens: int, weight: Tiled, device: torch.device, fused: bool) -> ExactShape:
    """The form of exact.cu for so many tokens; fused: with the fast tier's terms."""
    tiles, nb = num_tiles(weight.shape), weight.shape[1] // 32
    shape = exact_shape(num_tokens, tiles, nb, weight.format.name, multiprocessors(device))
    return replace(shape, fused=int(fused))
