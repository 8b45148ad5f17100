"""expert_gemm on f32, f16 and bf16 weights in stream order: portable.

Few pairs go one by one (few.py), many in tiles of the pairs of one expert (exact.py).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, reads_integers_late, wait_for_previous
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.grids import folded, folded_program
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import store_narrow, widen
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.products.dense.exact import TILE_TOKENS, tile_sum
from samebits.kernels.triton.products.dense.few import ROWS, row_dots
from samebits.kernels.triton.products.dense.operands import float_weight, operand_fault
from samebits.kernels.triton.products.segments import (
    check_indptr,
    layout_faults,
    load_pairs,
    segment_of,
    segment_tile,
)

MOST_FEW = 64  # pairs that go one by one
TILE_ROWS = 64


@triton.jit(do_not_specialize=["num_pairs", "share"])
def _expert_gemv(
    x_ptr, w_ptr, bias_ptr, y_ptr, pairs_ptr, indptr_ptr, fault_ptr, code, num_pairs, share, N,
    stride_x, stride_e, stride_w, K: tl.constexpr, EXPERTS: tl.constexpr, BOUND: tl.constexpr, R: tl.constexpr,
    V: tl.constexpr, BAD_INDPTR: tl.constexpr, BAD_PAIR: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """R rows of an expert times the row of one pair; programs are (rows, place)."""
    wait_for_previous(CHAINED)
    place = tl.program_id(1)
    if (tl.program_id(0) == 0) & (place == 0):
        check_indptr(indptr_ptr, fault_ptr, num_pairs, EXPERTS, BOUND, BAD_INDPTR)
    expert = segment_of(indptr_ptr, place, EXPERTS, BOUND)
    pair, known = load_pairs(pairs_ptr, place, expert < EXPERTS, num_pairs, fault_ptr, BAD_PAIR)
    if known:
        row = tl.program_id(0) * R + tl.arange(0, R)
        x_row = x_ptr + (pair // share).to(tl.int64) * stride_x
        w_row = w_ptr + expert.to(tl.int64) * stride_e + row.to(tl.int64) * stride_w
        y, refused = row_dots(x_row, w_row, row < N, K, R, V)
        if bias_ptr is not None:
            y = settle(y) + widen(tl.load(bias_ptr + expert.to(tl.int64) * N + row, mask=row < N, other=0.0))
        store_narrow(y_ptr + pair.to(tl.int64) * N + row, y, row < N)
        tl.store(fault_ptr, code, mask=refused)


@triton.jit(do_not_specialize=["num_pairs", "share"])
def _expert_tiles(
    x_ptr, w_ptr, bias_ptr, y_ptr, pairs_ptr, indptr_ptr, fault_ptr, code, num_pairs, share, N,
    stride_x, stride_e, stride_w, K: tl.constexpr, EXPERTS: tl.constexpr, BOUND: tl.constexpr, BT: tl.constexpr,
    BN: tl.constexpr, BAD_INDPTR: tl.constexpr, BAD_PAIR: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """BN rows of an expert times BT of its pairs; programs are (rows, tile of pairs)."""
    wait_for_previous(CHAINED)
    tile = folded_program()
    if (tl.program_id(0) == 0) & (tile == 0):
        check_indptr(indptr_ptr, fault_ptr, num_pairs, EXPERTS, BOUND, BAD_INDPTR)
    expert, first, stop = segment_tile(indptr_ptr, tile, EXPERTS, BOUND, BT)
    if expert < EXPERTS:
        place = first + tl.arange(0, BT)
        inside = (place >= 0) & (place < tl.minimum(stop, num_pairs))
        pair, known = load_pairs(pairs_ptr, place, inside, num_pairs, fault_ptr, BAD_PAIR)
        row = tl.program_id(0) * BN + tl.arange(0, BN)
        x_row = x_ptr + (pair // share).to(tl.int64) * stride_x
        w_row = w_ptr + expert.to(tl.int64) * stride_e + row.to(tl.int64) * stride_w
        y, refused = tile_sum(x_row, w_row, known, row < N, K)
        if bias_ptr is not None:
            y = settle(y) + widen(tl.load(bias_ptr + expert.to(tl.int64) * N + row, mask=row < N, other=0.0))[None, :]
        at = pair.to(tl.int64)[:, None] * N + row[None, :]
        store_narrow(y_ptr + at, y, known[:, None] & (row < N)[None, :])
        tl.store(fault_ptr, code, mask=tl.max(refused) != 0)


@implements("expert_gemm", tier=Tier.PORTABLE, when=float_weight)
@reads_integers_late
def expert_gemm_exact(
    x: torch.Tensor,
    weight: torch.Tensor,
    pairs: torch.Tensor,
    seg_indptr: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    num_pairs, (num_experts, n, k) = len(pairs), weight.shape
    y = torch.empty(num_pairs, n, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(-1) == 1 or k == 1 else x.contiguous()
    given = (
        x, weight, None if bias is None else bias.contiguous(), y, pairs.contiguous(), seg_indptr.contiguous(),
        fault_word(x.device), operand_fault("expert_gemm", weight.dtype), num_pairs, num_pairs // x.shape[0], n,
        x.stride(0), weight.stride(0), weight.stride(1),
    )  # fmt: skip
    constants = {"K": k, "EXPERTS": num_experts, "BOUND": power_of_two(num_experts)}
    constants |= {**layout_faults("expert_gemm"), **chained(x.device), **UNFUSED}
    if num_pairs <= MOST_FEW:
        grid = (cdiv(n, ROWS), num_pairs)
        _expert_gemv[grid](*given, R=ROWS, V=16 // weight.element_size(), num_warps=2, **constants)
        return y
    # every expert may end in a tile that is not full, and no tile is empty
    tiles = min(num_pairs, num_pairs // TILE_TOKENS + num_experts)
    _expert_tiles[folded(cdiv(n, TILE_ROWS), tiles)](*given, BT=TILE_TOKENS, BN=TILE_ROWS, num_warps=4, **constants)
    return y
