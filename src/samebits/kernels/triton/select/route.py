"""route: a program a token scores all experts, keeps the best groups, and takes the best experts one by one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import bits, exp, from_bits, recip, sigmoid
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import chain_columns, fault_where, sum_of_slots
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.select.keys import LOWEST, index_of, place_of, value_at
from samebits.kernels.triton.select.top_k import index_bits

MOST_EXPERTS = 4096  # all of them are in registers
MOST_RANKS = 256  # a cut of row order
CUT = tl.constexpr(256)
BAD_LOGITS = fault("route", "logits", "NaN or Inf", "finite values")


@triton.jit
def _normalizer(total):
    """recip(total), 0 for a total of 0."""
    is_alive = total > 0.0
    return tl.where(is_alive, recip(tl.where(is_alive, total, 1.0)), 0.0)


@triton.jit
def _exp_sum(logits_ptr, highest, EXPERTS: tl.constexpr, CUTS: tl.constexpr):
    """The sum of exp(logit - highest) over all experts in row order."""
    base = tl.arange(0, CUTS)[:, None] * CUT + tl.arange(0, 16)[None, :]
    slots = tl.zeros([CUTS, 16], tl.float32)
    STEPS: tl.constexpr = 16 if CUTS > 1 else (EXPERTS + 15) // 16  # what lies beyond adds +0
    for i in tl.static_range(STEPS):
        logits = tl.load(logits_ptr + base + i * 16, mask=base + i * 16 < EXPERTS, other=float("-inf"))
        slots = slots + exp(logits - highest)
    return tl.sum(sum_of_slots(slots, 1), axis=0)


@triton.jit
def _best(places):
    """The first place of [GROUPS, SIZE]."""
    return tl.max(tl.max(places, axis=1), axis=0)


@triton.jit
def _in_kept_groups(places, GROUPS: tl.constexpr, KEPT: tl.constexpr, BEST: tl.constexpr, BITS: tl.constexpr):
    """places, LOWEST for experts outside the best groups; a group counts as the sum of its BEST best."""
    first = tl.max(places, axis=1)
    score = 0.0 + value_at(first, BITS)
    if BEST == 2:
        second = tl.max(tl.where(places == first[:, None], LOWEST, places), axis=1)
        score = score + value_at(second, BITS)
    group = tl.arange(0, places.shape[0])
    left = place_of(score, group, GROUPS, BITS)
    kept = tl.zeros(group.shape, tl.int1)
    for _ in tl.static_range(KEPT):
        best = left == tl.max(left, axis=0)
        kept, left = kept | best, tl.where(best, LOWEST, left)
    return tl.where(kept[:, None], places, LOWEST)


@triton.jit
def _chain(x, rank, RANKS: tl.constexpr):
    """The sum of the first RANKS of x [WIDTH], in order."""
    total = 0.0
    for r in range(RANKS):
        total = total + from_bits(tl.sum(tl.where(rank == r, bits(x), 0), axis=0))
    return total


@triton.jit
def _chosen_softmax(weights, rank, RANKS: tl.constexpr):
    """softmax of weights [WIDTH] over the first RANKS; sums are in row order, which up to 16 is a chain."""
    inside = rank < RANKS
    highest = tl.max(tl.where(inside, weights, float("-inf")), axis=0)
    parts = tl.where(inside, exp(weights - highest), 0.0)
    if RANKS <= 16:
        total = _chain(parts, rank, RANKS)
    else:
        slots = chain_columns(tl.trans(tl.reshape(parts, [weights.shape[0] // 16, 16])))
        total = _chain(slots, tl.arange(0, 16), 16)
    return settle(parts * _normalizer(total))


@triton.jit
def route_kernel(
    logits_ptr, bias_ptr, ids_ptr, weights_ptr, fault_ptr, stride, eps, scale, EXPERTS: tl.constexpr,
    RANKS: tl.constexpr, SCORES: tl.constexpr, GROUPS: tl.constexpr, KEPT: tl.constexpr, GROUP_BEST: tl.constexpr,
    NORMALIZE: tl.constexpr, BIAS: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
    CUTS: tl.constexpr, WIDTH: tl.constexpr, BAD_LOGITS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Experts as [ROWS, SIZE], a row a group; powers of two, and so is WIDTH, of the ranks."""
    wait_for_previous(CHAINED)
    token = tl.program_id(0).to(tl.int64)
    logits_ptr += token * stride
    group, member = tl.arange(0, ROWS)[:, None], tl.arange(0, SIZE)[None, :]
    expert = group * (EXPERTS // GROUPS) + member
    inside = (group < GROUPS) & (member < EXPERTS // GROUPS)
    logits = tl.load(logits_ptr + expert, mask=inside, other=0.0)
    fault_where(fault_ptr, BAD_LOGITS, (tl.abs(logits) < float("inf")) == 0)
    score = logits
    if SCORES == "softmax":
        highest = tl.max(tl.max(tl.where(inside, logits, float("-inf")), axis=1), axis=0)
        total = _exp_sum(logits_ptr, highest, EXPERTS, CUTS)
        score = settle(exp(logits - highest) * _normalizer(total))
    elif SCORES == "sigmoid":
        score = sigmoid(logits)
    choice = score
    if BIAS:
        choice = settle(score + tl.load(bias_ptr + expert, mask=inside, other=0.0))
    places = tl.where(inside, place_of(choice, expert, EXPERTS, BITS), LOWEST)
    if GROUPS > 1:
        places = _in_kept_groups(places, GROUPS, KEPT, GROUP_BEST, BITS)
    rank = tl.arange(0, WIDTH)
    ids, weights = tl.zeros([WIDTH], tl.int32), tl.zeros([WIDTH], tl.float32)
    for r in range(RANKS):
        best = _best(places)
        mine = places == best
        if BIAS:
            weight = from_bits(tl.sum(tl.sum(tl.where(mine, bits(score), 0), axis=1), axis=0))
        else:  # what was chosen by, which its place holds
            weight = value_at(best, BITS)
        ids, weights = tl.where(rank == r, index_of(best, BITS), ids), tl.where(rank == r, weight, weights)
        places = tl.where(mine, LOWEST, places)
    if SCORES == "chosen":
        weights = _chosen_softmax(weights, rank, RANKS)
    if NORMALIZE:
        weights = settle(weights * _normalizer(_chain(weights, rank, RANKS) + eps))
    tl.store(ids_ptr + token * RANKS + rank, ids, mask=rank < RANKS)
    tl.store(weights_ptr + token * RANKS + rank, settle(weights * scale), mask=rank < RANKS)


def _fits(call: OpCall) -> str | None:
    """Scores and ranks are held in registers."""
    num_experts, top_k = call.inputs["logits"].shape[1], call.attrs["top_k"]
    if not isinstance(num_experts, int) or num_experts > MOST_EXPERTS:
        return f"{num_experts} experts; route of triton takes at most {MOST_EXPERTS}"
    return None if top_k <= MOST_RANKS else f"top_k is {top_k}; route of triton takes at most {MOST_RANKS}"


@implements("route", tier=Tier.PORTABLE, when=_fits)
def route(
    logits: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    top_k: int,
    scores: str,
    groups: int,
    groups_kept: int,
    group_best: int,
    normalize: bool,
    eps: float,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    num_tokens, num_experts = logits.shape
    ids = torch.empty((num_tokens, top_k), dtype=torch.int32, device=logits.device)
    weights = torch.empty((num_tokens, top_k), dtype=torch.float32, device=logits.device)
    if not num_tokens:
        return ids, weights
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    rows, size = power_of_two(groups), power_of_two(num_experts // groups)
    route_kernel[(num_tokens,)](
        logits, logits if bias is None else bias.contiguous(), ids, weights, fault_word(logits.device),
        logits.stride(0), eps, scale, EXPERTS=num_experts, RANKS=top_k, SCORES=scores, GROUPS=groups,
        KEPT=groups_kept, GROUP_BEST=group_best, NORMALIZE=normalize, BIAS=bias is not None,
        BITS=index_bits(num_experts), ROWS=rows, SIZE=size, CUTS=power_of_two(cdiv(num_experts, 256)),
        WIDTH=max(2, power_of_two(top_k)), BAD_LOGITS=BAD_LOGITS,
        num_warps=max(1, min(8, rows * size // 256)), **chained(logits.device), **UNFUSED,
    )  # fmt: skip
    return ids, weights
