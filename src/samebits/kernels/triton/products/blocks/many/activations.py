"""Activations for block-quantized products, as warps.py reads them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.rows import fault_where
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.products.blocks.checks import activation_faults, lowest_codes, not_finite

MOST_PROGRAMS = 1024  # beyond it a program arranges several blocks
WITH_OFFSETS = ("q4_1", "q5_1", "q4_k", "q5_k")


@triton.jit
def arrange_rows(
    codes_ptr,
    scales_ptr,
    words_ptr,
    sa_ptr,
    asum_ptr,
    fault_ptr,
    tile,
    row,
    is_row,
    nb,
    codes_stride,
    scales_stride,
    NT: tl.constexpr,
    ASUM: tl.constexpr,
    BLOCKS: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
):
    """BLOCKS blocks of the rows [1, 8 * NT], int64, of a tile of tokens, in the order of gemm_warps; zeros for no row.

    What is refused is looked for here: every code and scale passes once, and gemm_warps reads them again and again.

    words      int32 [tiles, nb, NT, 8 tokens, 4, 2]: words t and 4 + t of a token's block
    sa, asum   float32 [tiles, nb, 8 * NT]
    """
    b = (tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS))[:, None]
    inside = is_row & (b < nb)
    at = (tile * nb + b) * (8 * NT) + tl.arange(0, 8 * NT)[None, :]
    scales = tl.load(scales_ptr + row * scales_stride + b, mask=inside, other=0.0)
    fault_where(fault_ptr, BAD_SCALES, not_finite(scales))
    tl.store(sa_ptr + at, scales, mask=b < nb)
    word = tl.arange(0, 8)[None, None, :]
    source = row[:, :, None] * codes_stride + b[:, :, None] * 8 + word
    words = tl.load(codes_ptr + source, mask=inside[:, :, None], other=0)
    fault_where(fault_ptr, BAD_CODES, tl.max((lowest_codes(words) != 0).to(tl.int32), axis=2) != 0)
    halves = tl.permute(tl.reshape(words, [BLOCKS, 8 * NT, 2, 4]), (0, 1, 3, 2))
    tl.store(words_ptr + at[:, :, None] * 8 + word, tl.reshape(halves, words.shape), mask=(b < nb)[:, :, None])
    if ASUM:
        total = (words << 24 >> 24) + (words << 16 >> 24) + (words << 8 >> 24) + (words >> 24)
        tl.store(asum_ptr + at, tl.sum(total, axis=2).to(tl.float32), mask=b < nb)


@triton.jit(do_not_specialize=["T", "nb"])
def _arrange(
    codes_ptr,
    scales_ptr,
    words_ptr,
    sa_ptr,
    asum_ptr,
    fault_ptr,
    T,
    nb,
    codes_stride,
    scales_stride,
    NT: tl.constexpr,
    ASUM: tl.constexpr,
    BLOCKS: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Activations in the order of gemm_warps, tokens padded with zeros to tiles of 8 * NT."""
    wait_for_previous(CHAINED)
    tile = tl.program_id(0).to(tl.int64)
    token = tile * (8 * NT) + tl.arange(0, 8 * NT)[None, :]
    arrange_rows(
        codes_ptr, scales_ptr, words_ptr, sa_ptr, asum_ptr, fault_ptr, tile, token, token < T, nb,
        codes_stride, scales_stride, NT, ASUM, BLOCKS, BAD_CODES, BAD_SCALES,
    )  # fmt: skip


def room(
    tiles: int, num_blocks: int, format_name: str, width: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Memory for activations as gemm_warps reads them: words, scales, sums of the codes.

    Formats without an offset need no sums: theirs are the scales once more.
    """
    padded = tiles * 8 * width
    words = torch.empty(padded * num_blocks * 8, dtype=torch.int32, device=device)
    floats = torch.empty(1 + (format_name in WITH_OFFSETS), padded * num_blocks, dtype=torch.float32, device=device)
    return words, floats[0], floats[-1]


def as_words(codes: torch.Tensor) -> torch.Tensor:
    """int8 rows as int32 words, copied where strides need it."""
    return (codes if codes.stride(-1) == 1 and codes.stride(0) % 4 == 0 else codes.contiguous()).view(torch.int32)


def arranged(
    codes: torch.Tensor, scales: torch.Tensor, format_name: str, width: int, op: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Activations of an op as gemm_warps reads them, in tiles of 8 * width tokens: words, scales, sums of the codes.

    Stores the op's faults for codes and scales that quantize_q8 does not make.
    """
    num_tokens, nb = scales.shape
    tiles = cdiv(num_tokens, 8 * width)
    made = room(tiles, nb, format_name, width, codes.device)
    source = as_words(codes)
    blocks = 1 if tiles * nb <= MOST_PROGRAMS else 4
    _arrange[(tiles, cdiv(nb, blocks))](
        source,
        scales,
        *made,
        fault_word(codes.device),
        num_tokens,
        nb,
        source.stride(0),
        scales.stride(0),
        NT=width,
        ASUM=format_name in WITH_OFFSETS,
        BLOCKS=blocks,
        **activation_faults(op),
        **chained(codes.device),
        **UNFUSED,
    )
    return made
