"""expert_layout: the pairs of every expert side by side, in one launch.

A program an expert: it counts the choices of lower experts, which says where its own begin, and then writes those in
order. No program waits for another, and nothing is sorted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, reads_integers_late, wait_for_previous
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import fault_where

SHORT, LONG = 128, 2048  # choices that a program reads at once: of a decode step, of a prompt
BAD_ID = fault("expert_layout", "expert_ids", "a number of no expert", "0 .. num_experts - 1")


@triton.jit(do_not_specialize=["num_pairs"])
def layout_kernel(
    ids_ptr, pairs_ptr, indptr_ptr, fault_ptr, num_pairs,
    EXPERTS: tl.constexpr, BLOCK: tl.constexpr, BAD_ID: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """The last program, of no expert, writes the end and looks for what is refused."""
    wait_for_previous(CHAINED)
    expert = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    lower = tl.zeros([BLOCK], tl.int32)
    first = 0
    while first < num_pairs:
        ids = tl.load(ids_ptr + first + at, mask=first + at < num_pairs, other=EXPERTS)
        lower += ((ids >= 0) & (ids < expert)).to(tl.int32)
        first += BLOCK
    begin = tl.sum(lower, axis=0)
    tl.store(indptr_ptr + expert, begin)
    first = 0
    while first < num_pairs:
        pair = first + at
        ids = tl.load(ids_ptr + pair, mask=pair < num_pairs, other=-1)
        if expert == EXPERTS:
            fault_where(fault_ptr, BAD_ID, (pair < num_pairs) & ((ids < 0) | (ids >= EXPERTS)))
        else:
            mine = (ids == expert).to(tl.int32)
            tl.store(pairs_ptr + begin + tl.cumsum(mine, axis=0) - 1, pair, mask=mine != 0)
            begin += tl.sum(mine, axis=0)
        first += BLOCK


@implements("expert_layout", tier=Tier.PORTABLE)
@reads_integers_late
def expert_layout(expert_ids: torch.Tensor, *, num_experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    num_pairs, device = expert_ids.numel(), expert_ids.device
    pairs = torch.empty(num_pairs, dtype=torch.int32, device=device)
    seg_indptr = torch.empty(num_experts + 1, dtype=torch.int32, device=device)
    block = SHORT if num_pairs <= SHORT else LONG
    layout_kernel[(num_experts + 1,)](
        expert_ids.contiguous(), pairs, seg_indptr, fault_word(device), num_pairs,
        EXPERTS=num_experts, BLOCK=block, BAD_ID=BAD_ID, num_warps=1 if block == SHORT else 8,
        **chained(device), **UNFUSED,
    )  # fmt: skip
    return pairs, seg_indptr
