"""The launch of blocks.cu, and the calls that it serves."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from samebits.core.format import BLOCK
from samebits.kernels.ahead import is_noting, note
from samebits.kernels.cuda.hopper import ARCH, is_served
from samebits.kernels.cuda.modules import Function, pointer
from samebits.kernels.cuda.nvrtc import CudaBuild
from samebits.kernels.cuda.products.laid_out import Values, carry_values
from samebits.kernels.cuda.products.launch import MOST_TOKENS
from samebits.kernels.cuda.products.shapes import token_tiles
from samebits.kernels.triton.lib.faults import fault_word
from samebits.ops.quantize import LARGEST_AMAX, SMALLEST_AMAX

SOURCE = Path(__file__).parent / "blocks.cu"
FEWEST_TOKENS = 17  # up to MOST_TOKENS wide.cu multiplies so many, of every format, and Triton's products more
PER_WARP, MOST_WIDTH = 512, 16384  # elements of a row
ALIGN = 16  # bytes that are loaded at a time


class _Rows(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("x", "residual", "weight", "codes", "scales", "values", "row_scales", "fault")
    )


class _Numbers(ctypes.Structure):
    _fields_ = (
        ("fault_number", ctypes.c_int),
        ("width", ctypes.c_int),
        *((name, ctypes.c_float) for name in ("eps", "smallest", "largest")),
    )


def serves(x: torch.Tensor, *others: torch.Tensor) -> bool:
    """Whether rows x [T, K], and what is added to them or multiplies them, are taken here."""
    if x.dim() != 2 or x.shape[0] < FEWEST_TOKENS or x.shape[1] % PER_WARP or x.shape[1] > MOST_WIDTH:
        return False
    return all(_is_plain(given) for given in (x, *others)) and is_served(x.device)


def _is_plain(x: torch.Tensor) -> bool:
    return x.dtype == torch.float32 and x.is_contiguous() and x.data_ptr() % ALIGN == 0


def build_of(width: int, is_normed: bool, is_plain: bool) -> CudaBuild:
    """The kernel for rows of a width; is_plain: it writes rows, not fragments."""
    return CudaBuild(SOURCE, (("K", width), ("NORMED", int(is_normed)), ("PLAIN", int(is_plain))), ARCH)


@cache
def _function(width: int, is_normed: bool, is_plain: bool, device: torch.device) -> Function:
    return Function.on(device, build_of(width, is_normed, is_plain).code(), "blocks_of_rows", width // 16, 0)


def blocks_of_rows(
    x: torch.Tensor,
    fault: int,
    residual: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    eps: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes int8 [T, K], scales float32 [T, K / 32]) of rows that `serves` takes; the codes carry their values.

    With a residual [T, K] and a weight [K] of add_rms_norm_q8, which updates the residual. `fault` is stored where a
    value has no code.
    """
    (num_tokens, width), device = x.shape, x.device
    codes = torch.empty(num_tokens, width, dtype=torch.int8, device=device)
    scales = torch.empty(num_tokens, width // BLOCK, dtype=torch.float32, device=device)
    form, tiles = (width, residual is not None, num_tokens > MOST_TOKENS), 0
    if num_tokens > MOST_TOKENS:
        values = torch.empty(num_tokens, width, dtype=torch.float16, device=device)
    else:
        tiles = token_tiles(num_tokens)
        values = torch.empty(width // BLOCK, tiles, 128, dtype=torch.int32, device=device)
    row_scales = torch.empty(num_tokens, dtype=torch.float32, device=device)
    carry_values(codes, scales, Values(tiles, values, row_scales))
    if is_noting():
        note(build_of(*form))
        return codes, scales
    given = (x, residual, weight, codes, scales, values, row_scales, fault_word(device))
    rows = _Rows(*(pointer(tensor) for tensor in given))
    numbers = _Numbers(fault, tiles, eps, float(SMALLEST_AMAX), float(LARGEST_AMAX))
    _function(*form, device).launch((num_tokens, 1), (rows, numbers))
    return codes, scales
