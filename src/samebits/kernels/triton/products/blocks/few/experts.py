"""A few pairs of tokens and experts: every pair's product by one.py, at the speed of memory.

A program owns a tile of 16 rows of one expert and up to ROWS of the pairs that chose it, one after another: the tile
comes from memory for the first and from the cache for the others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.devices import PTX_HERE
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import CHUNK, TILE
from samebits.kernels.triton.products.blocks.checks import check_activations
from samebits.kernels.triton.products.blocks.few.launch import constants, group_chunks, inputs, layout
from samebits.kernels.triton.products.blocks.few.one import walk_tiles
from samebits.kernels.triton.products.blocks.few.shared import activations_asm, exchange_asm
from samebits.kernels.triton.products.segments import check_indptr, known_pairs, layout_faults, segment_of

ROWS = 8


@triton.jit(do_not_specialize=["num_rows", "num_pairs", "share"])
def expert_gemv_kernel(
    a_ptr, sa_ptr, data_ptr, bias_ptr, y_ptr, fault_ptr, offsets, scale, N, pairs_ptr, indptr_ptr,
    num_rows, num_pairs, share, EXPERTS: tl.constexpr, BOUND: tl.constexpr, ROWS: tl.constexpr,
    NB: tl.constexpr, BIAS: tl.constexpr, FORMAT: tl.constexpr, SHIFT: tl.constexpr, C: tl.constexpr,
    MASK: tl.constexpr, ONE: tl.constexpr, ACTIVATIONS: tl.constexpr, EXCHANGE: tl.constexpr,
    BAD_CODES: tl.constexpr, BAD_SCALES: tl.constexpr, BAD_INDPTR: tl.constexpr, BAD_PAIR: tl.constexpr,
    PTX: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Programs are (tile of an expert and one more, place); that of a run's first place serves the run.

    The last one of a place looks for what is refused in the row of its number. share: pairs that read a row.
    """
    tiles, place = tl.num_programs(0) - 1, tl.program_id(1)
    wait_for_previous(CHAINED)  # which weights are read depends on what came before
    if tl.program_id(0) == tiles:
        if place == 0:
            check_indptr(indptr_ptr, fault_ptr, num_pairs, EXPERTS, BOUND, BAD_INDPTR)
        if place < num_rows:
            check_activations(
                a_ptr + place * (NB * 8), sa_ptr + place * NB, fault_ptr, NB, C * 16, BAD_CODES, BAD_SCALES
            )
        return
    pair = tl.load(pairs_ptr + place)  # on its way while the expert is looked for
    expert = segment_of(indptr_ptr, place, EXPERTS, BOUND)
    if expert == EXPERTS:
        return
    start, stop = tl.load(indptr_ptr + expert), tl.minimum(tl.load(indptr_ptr + expert + 1), num_pairs)
    if (place < start) | ((place - start) % ROWS != 0):
        return
    stop = tl.minimum(stop, place + ROWS)
    if BIAS:
        bias_ptr += expert.to(tl.int64) * N
    while place < stop:
        if known_pairs(pair, place < stop, num_pairs, fault_ptr, BAD_PAIR):
            row = pair // share
            walk_tiles(
                a_ptr + row * (NB * 8), sa_ptr + row * NB, data_ptr, bias_ptr, y_ptr + pair.to(tl.int64) * N, offsets,
                scale, N, expert * tiles, tiles, tiles, NB, BIAS, FORMAT, SHIFT, C, MASK, ONE, ACTIVATIONS, EXCHANGE,
                PTX, False,
            )  # fmt: skip
        tl.debug_barrier()  # the next pair's activations and sums take the place of this one's
        place += 1
        pair = tl.load(pairs_ptr + place, mask=place < stop, other=0)


def expert_gemv_q8(
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
    num_experts, n, k = weight.shape
    nb, chunks, device = k // BLOCK, group_chunks(weight), codes.device
    expert_gemv_kernel[cdiv(n, TILE) + 1, len(pairs)](
        *inputs(codes, scales, weight),
        scales if bias is None else bias,
        y,
        fault_word(device),
        *layout(weight),
        n,
        pairs,
        seg_indptr,
        codes.shape[0],
        len(pairs),
        len(pairs) // codes.shape[0],
        EXPERTS=num_experts,
        BOUND=power_of_two(num_experts),
        ROWS=ROWS,
        BIAS=bias is not None,
        ONE=nb <= CHUNK * chunks,
        ACTIVATIONS=activations_asm(nb, chunks * TILE),
        EXCHANGE=exchange_asm(chunks),
        PTX=PTX_HERE,
        num_warps=chunks // 2,
        **layout_faults(op),
        **constants(weight, chunks, op, device),
    )
