"""Activations on their way into the products of the fast tier: int8 blocks to float16."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import bits, from_bits
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import FUSED
from samebits.kernels.triton.lib.rows import fault_where
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.products.blocks.checks import activation_faults, lowest_codes, not_finite
from samebits.kernels.triton.products.blocks.many.activations import as_words


@triton.jit
def _unit_of_row(scales_ptr, nb: tl.constexpr, ALL: tl.constexpr):
    """(the scales of a row, padded with zeros; the bits of the power of two that its values are divided by).

    The largest scale becomes 2^8 to 2^9, of which float16 holds 127 times. A scale 2^31 below it is at least twice
    float16's smallest number, so that a value of such a block is wrong by a quarter of its step at most.
    """
    every = tl.arange(0, ALL)
    scales = tl.load(scales_ptr + every, mask=every < nb, other=0.0)
    power = bits(tl.max(tl.abs(scales))) & 0x7F800000
    return scales, tl.where(power == 0, 0x3F800000, tl.maximum(power, 0x04800000)) - 0x04000000


@triton.jit
def _widen(
    codes_ptr,
    scales_ptr,
    x_ptr,
    row_scale_ptr,
    fault_ptr,
    num_tokens,
    stride_codes,
    stride_scales,
    NB: tl.constexpr,
    ALL: tl.constexpr,
    BLOCKS: tl.constexpr,
    HALVES: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Blocks of a token as float16, divided by a power of two of the token's own, so that none leaves the range."""
    wait_for_previous(CHAINED)
    token = tl.program_id(0).to(tl.int64)
    scales_ptr += token * stride_scales
    all_scales, unit = _unit_of_row(scales_ptr, NB, ALL)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    j = tl.arange(0, 32)
    inside = (block < NB)[:, None] & (j >= 0)[None, :]
    place = block[:, None] * 32 + j[None, :]
    codes = tl.load(codes_ptr + token * stride_codes + place, mask=inside, other=0)
    fault_where(fault_ptr, BAD_CODES, tl.max((codes == -128).to(tl.int32), axis=1) != 0)
    scale = tl.load(scales_ptr + block, mask=block < NB, other=0.0)
    x = (codes.to(tl.float32) * (scale * from_bits(0x7F000000 - unit))[:, None]).to(tl.float16)
    if HALVES:
        half = (j // 16)[None, :] * (num_tokens * (NB * 16)) + block[:, None] * 16 + (j % 16)[None, :]
        tl.store(x_ptr + token * (NB * 16) + half, x, mask=inside)
    else:
        tl.store(x_ptr + token * (NB * 32) + place, x, mask=inside)
    if tl.program_id(1) == 0:
        tl.store(row_scale_ptr + token, from_bits(unit))
        fault_where(fault_ptr, BAD_SCALES, not_finite(all_scales))


@triton.jit
def _as_fragments(
    codes_ptr,
    scales_ptr,
    x_ptr,
    row_scale_ptr,
    fault_ptr,
    stride_codes,
    stride_scales,
    NB: tl.constexpr,
    ALL: tl.constexpr,
    BLOCKS: tl.constexpr,
    NT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """The same numbers in the order of `fragments`, in words: a block of a token is 16 of them.

    A word is made of the bytes 0 and 2, or 1 and 3, of one word of codes.
    """
    place = tl.arange(0, BLOCKS * 16)
    block = tl.program_id(1) * BLOCKS + place // 16
    lane, pair = place % 16 // 4, place % 4  # pair: half of the block, then even or odd elements
    token = tl.program_id(0).to(tl.int64)
    inside = block < NB
    wait_for_previous(CHAINED)
    word, shift = block * 8 + pair // 2 * 4 + lane, pair % 2 * 8
    codes = tl.load(codes_ptr + token * stride_codes + word, mask=inside, other=0)
    scales_ptr += token * stride_scales
    scale = tl.load(scales_ptr + block, mask=inside, other=0.0)
    all_scales, unit = _unit_of_row(scales_ptr, NB, ALL)
    factor = scale * from_bits(0x7F000000 - unit)
    low = ((codes << (24 - shift) >> 24).to(tl.float32) * factor).to(tl.float16).to(tl.int16, bitcast=True)
    high = ((codes << (8 - shift) >> 24).to(tl.float32) * factor).to(tl.float16).to(tl.int16, bitcast=True)
    x = (low.to(tl.int32) & 0xFFFF) | (high.to(tl.int32) << 16)
    to = pair * 32 + token % 8 * 4 + lane if COLUMNS else token % 8 * 16 + lane * 4 + pair
    tl.store(x_ptr + (block * NT + token // 8) * 128 + to, x, mask=inside)
    fault_where(fault_ptr, BAD_CODES, lowest_codes(codes) != 0)
    if tl.program_id(1) == 0:
        tl.store(row_scale_ptr + token, from_bits(unit))
        fault_where(fault_ptr, BAD_SCALES, not_finite(all_scales))


def widened(codes: torch.Tensor, scales: torch.Tensor, op_name: str, order: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(float16 [T * K], float32 [T], what to multiply by).

    order   "rows": [T, K]; "halves": [2, T, K / 2], the low halves of all blocks first
    """
    num_tokens, nb = scales.shape
    shape = {"rows": (num_tokens, nb * BLOCK), "halves": (2, num_tokens, nb * 16)}[order]
    x = torch.empty(shape, dtype=torch.float16, device=codes.device)
    row_scale = torch.empty(num_tokens, dtype=torch.float32, device=codes.device)
    blocks = min(power_of_two(nb), 64)
    _widen[(num_tokens, cdiv(nb, blocks))](
        codes,
        scales,
        x,
        row_scale,
        fault_word(codes.device),
        num_tokens,
        codes.stride(0),
        scales.stride(0),
        NB=nb,
        ALL=power_of_two(nb),
        BLOCKS=blocks,
        HALVES=order == "halves",
        **activation_faults(op_name),
        num_warps=4,
        **chained(codes.device),
        **FUSED,
    )
    return x, row_scale


def fragments(
    codes: torch.Tensor, scales: torch.Tensor, op_name: str, token_tiles: int, has_columns: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for kernels/cuda: words [K / 32, token tiles, 128] of two float16 each, and float32 [T].

    A word has elements e, e + 2 or e + 1, e + 3 of four elements: of the halves of a block, each with four fours, that
    makes four words a four. A tile has them as [8 tokens, 4 fours, 4], or with columns as [4, 8 tokens, 4 fours].
    Tokens are padded to tiles of 8 with what lies there.
    """
    num_tokens, nb = scales.shape
    x = torch.empty(nb, token_tiles, 128, dtype=torch.int32, device=codes.device)
    row_scale = torch.empty(num_tokens, dtype=torch.float32, device=codes.device)
    words = as_words(codes)
    blocks = min(power_of_two(nb), 32)
    _as_fragments[(num_tokens, cdiv(nb, blocks))](
        words,
        scales,
        x,
        row_scale,
        fault_word(codes.device),
        words.stride(0),
        scales.stride(0),
        NB=nb,
        ALL=power_of_two(nb),
        BLOCKS=blocks,
        NT=token_tiles,
        COLUMNS=has_columns,
        **activation_faults(op_name),
        num_warps=4,
        **chained(codes.device),
        **FUSED,
    )
    return x, row_scale
