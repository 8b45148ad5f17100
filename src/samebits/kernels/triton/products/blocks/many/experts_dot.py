"""Many pairs of tokens and experts on AMD: tiles of the pairs of one expert, by dot.py."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.grids import folded, folded_program
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.products.blocks.checks import activation_faults
from samebits.kernels.triton.products.blocks.many.dot import check_tile, dot_totals
from samebits.kernels.triton.products.blocks.many.launch import DOT_ROWS, DOT_TOKENS, planes_of, weight_scale
from samebits.kernels.triton.products.blocks.many.terms import KINDS
from samebits.kernels.triton.products.segments import check_indptr, layout_faults, load_pairs, segment_tile


@triton.jit(do_not_specialize=["num_pairs", "share", "N", "nb"])
def expert_dot(
    acts_ptr, scales_ptr, codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr, bias_ptr, y_ptr, pairs_ptr, indptr_ptr,
    fault_ptr, acts_stride, scales_stride, scale, num_pairs, share, N, nb, EXPERTS: tl.constexpr, BOUND: tl.constexpr,
    FORMAT: tl.constexpr, KIND: tl.constexpr, BIAS: tl.constexpr, BAD_CODES: tl.constexpr, BAD_SCALES: tl.constexpr,
    BAD_INDPTR: tl.constexpr, BAD_PAIR: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BN rows of an expert times BT of its pairs; programs are (rows and one more, tile of pairs).

    The last one of a tile looks for what is refused, beside the others.
    """
    expert, first, stop = segment_tile(indptr_ptr, folded_program(), EXPERTS, BOUND, BT)
    checks = tl.program_id(0) == tl.num_programs(0) - 1
    if checks & (folded_program() == 0):
        check_indptr(indptr_ptr, fault_ptr, num_pairs, EXPERTS, BOUND, BAD_INDPTR)
    if expert == EXPERTS:
        return
    place = first + tl.arange(0, BT)
    inside = (place >= 0) & (place < tl.minimum(stop, num_pairs))
    pair, known = load_pairs(pairs_ptr, place, inside, num_pairs, fault_ptr, BAD_PAIR)
    source = (pair // share).to(tl.int64)
    acts = (acts_ptr, scales_ptr, acts_stride, scales_stride)
    if checks:
        check_tile(acts, source, known, nb, fault_ptr, BAD_CODES, BAD_SCALES)
        return
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    tile = expert.to(tl.int64) * tl.cdiv(N, 16) + row // 16
    planes = (codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr)
    total = dot_totals(acts, planes, source, known, tile * nb, nb, row % 16, row < N, scale, FORMAT, KIND)
    if BIAS:
        bias_ptr += expert.to(tl.int64) * N
        total = settle(total) + tl.load(bias_ptr + row, mask=row < N, other=0.0).to(tl.float32)[None, :]
    at = pair.to(tl.int64)[:, None] * N + row[None, :]
    tl.store(y_ptr + at, settle(total), mask=known[:, None] & (row < N)[None, :])


def expert_gemm_dot(
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
    (num_experts, n, k), num_pairs = weight.shape, len(pairs)
    # every expert may end in a tile that is not full, and no tile is empty
    tiles = min(num_pairs, num_pairs // DOT_TOKENS + num_experts)
    expert_dot[folded(cdiv(n, DOT_ROWS) + 1, tiles)](
        codes, scales, *planes_of(weight, words=False), y if bias is None else bias, y, pairs, seg_indptr,
        fault_word(codes.device), codes.stride(0), scales.stride(0), weight_scale(weight), num_pairs,
        num_pairs // codes.shape[0], n, k // BLOCK, EXPERTS=num_experts, BOUND=power_of_two(num_experts),
        FORMAT=weight.format.name, KIND=KINDS[weight.format.name], BIAS=bias is not None,
        **activation_faults(op), **layout_faults(op), BT=DOT_TOKENS, BN=DOT_ROWS, **UNFUSED,
    )  # fmt: skip
