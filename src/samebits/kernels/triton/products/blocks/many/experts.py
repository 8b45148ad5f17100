"""Many pairs of tokens and experts: tiles of the pairs of one expert, by warps.py.

Which tiles there are, only the device knows. A first kernel finds the pairs of every tile and arranges their
activations; the second multiplies. Grids have room for the most tiles that so many pairs can make, and programs
without work leave.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import TILE
from samebits.kernels.triton.products.blocks.checks import activation_faults
from samebits.kernels.triton.products.blocks.many.activations import (
    MOST_PROGRAMS,
    WITH_OFFSETS,
    arrange_rows,
    as_words,
    room,
)
from samebits.kernels.triton.products.blocks.many.launch import Shape, planes_of, warp_constants, weight_scale
from samebits.kernels.triton.products.blocks.many.results import store_totals
from samebits.kernels.triton.products.blocks.many.warps import at_token_tile, program_tiles, tile_totals
from samebits.kernels.triton.products.segments import check_indptr, layout_faults, load_pairs, segment_tile


@triton.jit(do_not_specialize=["num_pairs", "share", "nb"])
def arrange_pairs(
    codes_ptr, scales_ptr, words_ptr, sa_ptr, asum_ptr, pairs_ptr, indptr_ptr, experts_ptr, places_ptr, fault_ptr,
    num_pairs, share, nb, codes_stride, scales_stride, EXPERTS: tl.constexpr, BOUND: tl.constexpr, NT: tl.constexpr,
    ASUM: tl.constexpr, BLOCKS: tl.constexpr, BAD_CODES: tl.constexpr, BAD_SCALES: tl.constexpr,
    BAD_INDPTR: tl.constexpr, BAD_PAIR: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A tile of 8 * NT pairs of one expert: activations as arrange_rows leaves them, and what the tile is.

    experts   int32 [tiles]: whose pairs they are, -1 where the tile has none
    places    int32 [tiles, 8 * NT]: the pairs, -1 for none; rows of y
    """
    wait_for_previous(CHAINED)
    tile = tl.program_id(0)
    expert, first, stop = segment_tile(indptr_ptr, tile, EXPERTS, BOUND, 8 * NT)
    if tl.program_id(1) == 0:
        tl.store(experts_ptr + tile, tl.where(expert == EXPERTS, -1, expert))
        if tile == 0:
            check_indptr(indptr_ptr, fault_ptr, num_pairs, EXPERTS, BOUND, BAD_INDPTR)
    if expert == EXPERTS:
        return
    slot = tl.arange(0, 8 * NT)
    place = first + slot
    inside = (place >= 0) & (place < tl.minimum(stop, num_pairs))
    pair, known = load_pairs(pairs_ptr, place, inside, num_pairs, fault_ptr, BAD_PAIR)
    if tl.program_id(1) == 0:
        tl.store(places_ptr + tile * (8 * NT) + slot, tl.where(known, pair, -1))
    row = (pair // share).to(tl.int64)
    arrange_rows(
        codes_ptr, scales_ptr, words_ptr, sa_ptr, asum_ptr, fault_ptr, tile.to(tl.int64), row[None, :], known[None, :],
        nb, codes_stride, scales_stride, NT, ASUM, BLOCKS, BAD_CODES, BAD_SCALES,
    )  # fmt: skip


@triton.jit(do_not_specialize=["token_tiles", "N", "nb"])
def expert_warps(
    words_ptr, sa_ptr, asum_ptr, codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr, bias_ptr, y_ptr,
    experts_ptr, places_ptr, scale, token_tiles, N, nb, FORMAT: tl.constexpr, KIND: tl.constexpr, MT: tl.constexpr,
    NT: tl.constexpr, WARPS: tl.constexpr, GROUPS: tl.constexpr, ROWS_AHEAD: tl.constexpr, TOKENS_AHEAD: tl.constexpr,
    LINES_AHEAD: tl.constexpr, TAIL: tl.constexpr, BIAS: tl.constexpr, EMULATE: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """gemm_warps for tiles that arrange_pairs made: rows of the tile's expert, results at the tile's pairs."""
    wait_for_previous(CHAINED)
    row_group, token_tile = program_tiles(token_tiles, tl.cdiv(N, 16 * MT * WARPS))
    expert = tl.load(experts_ptr + token_tile)
    if expert < 0:
        return
    token_tile = token_tile.to(tl.int64)
    acts = at_token_tile(words_ptr, sa_ptr, asum_ptr, token_tile, nb, NT)
    planes = (codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr)
    warp = tl.arange(0, 32 * WARPS * GROUPS) // 32 % WARPS
    tiles = (N + 15) // 16
    totals = tile_totals(
        acts, planes, expert * tiles + (row_group * WARPS + warp) * MT, (expert + 1) * tiles - 1, scale, nb,
        FORMAT, KIND, MT, NT, WARPS, GROUPS, ROWS_AHEAD, TOKENS_AHEAD, LINES_AHEAD, TAIL, EMULATE,
    )  # fmt: skip
    if BIAS:
        bias_ptr += expert.to(tl.int64) * N
    store_totals(
        totals, bias_ptr, y_ptr, row_group, token_tile, token_tiles * (8 * NT), N, places_ptr,
        MT, NT, WARPS, GROUPS, BIAS, True,
    )  # fmt: skip


def expert_shape(num_pairs: int, num_experts: int, fmt: str) -> Shape:
    """Tiles about as wide as an expert has pairs, without groups: experts make programs enough. All shapes give the
    same bits."""
    width = num_pairs // num_experts
    if width <= 8:
        return Shape(2, 1, 2, 1, 4, 4) if fmt == "mxfp4" else Shape(1, 1, 4, 1, 8, 8)
    if width <= 24:
        return Shape(1, 2, 4, 1, 8, 8)
    return Shape(2, 4, 4, 1, 1, 1, registers=168, lines_ahead=4)


def expert_gemm_int8(
    codes: torch.Tensor,
    scales: torch.Tensor,
    weight: Tiled,
    pairs: torch.Tensor,
    seg_indptr: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    op: str,
) -> None:
    """Fills y [P, N] from int8 blocks [X, K] and a weight [E, N, K]; none of them is 0."""
    (num_experts, n, k), num_pairs, device = weight.shape, len(pairs), codes.device
    nb, name = k // BLOCK, weight.format.name
    shape = expert_shape(num_pairs, num_experts, name)
    width = 8 * shape.token_tiles
    # every expert may end in a tile that is not full, and no tile is empty
    tiles = min(num_pairs, num_pairs // width + num_experts)
    made = room(tiles, nb, name, shape.token_tiles, device)
    experts = torch.empty(tiles, dtype=torch.int32, device=device)
    places = torch.empty(tiles * width, dtype=torch.int32, device=device)
    # a program finds its tile first: few programs with several blocks each
    source, blocks = as_words(codes), 4 if tiles * nb <= 4 * MOST_PROGRAMS else 16
    arrange_pairs[(tiles, cdiv(nb, blocks))](
        source, scales, *made, pairs, seg_indptr, experts, places, fault_word(device),
        num_pairs, num_pairs // codes.shape[0], nb, source.stride(0), scales.stride(0),
        EXPERTS=num_experts, BOUND=power_of_two(num_experts), NT=shape.token_tiles,
        ASUM=name in WITH_OFFSETS, BLOCKS=blocks,
        **activation_faults(op), **layout_faults(op), **chained(device), **UNFUSED,
    )  # fmt: skip
    row_groups = cdiv(n, TILE * shape.row_tiles * shape.warps)
    expert_warps[(tiles * row_groups,)](
        *(part.view(torch.int64) for part in made), *planes_of(weight, words=True), y if bias is None else bias, y,
        experts, places, weight_scale(weight), tiles, n, nb,
        BIAS=bias is not None, **warp_constants(weight, shape), **chained(device),
    )  # fmt: skip
