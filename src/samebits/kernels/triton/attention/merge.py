"""merge_state: two partial attention outputs by their log-sum-exp."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.elementary import exp, log2, recip
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import store_narrow
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.ops import state

LN2 = tl.constexpr(float(state.LN2))
BAD_A = tl.constexpr(fault("merge_state", "s_a", "NaN or +Inf", "finite values or -Inf"))
BAD_B = tl.constexpr(fault("merge_state", "s_b", "NaN or +Inf", "finite values or -Inf"))
TILE = 2048  # elements a program handles


@triton.jit
def _weighted(v, w):
    """v * w, and +0 for an empty state, whatever its v holds."""
    is_alive = w > 0.0
    return tl.where(is_alive, tl.where(is_alive, v, 0.0) * w, 0.0)


@triton.jit
def _refuse(fault_ptr, s, CODE: tl.constexpr):
    tl.store(fault_ptr, CODE, mask=tl.max(tl.where(s < float("inf"), 0, 1), axis=0) != 0)


@triton.jit
def merge_rows(
    va_ptr, sa_ptr, vb_ptr, sb_ptr, v_ptr, s_ptr, fault_ptr, num_rows, width, R: tl.constexpr, D: tl.constexpr
):
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.arange(0, D)
    is_row = row < num_rows
    s_a = tl.load(sa_ptr + row, mask=is_row, other=0.0)
    s_b = tl.load(sb_ptr + row, mask=is_row, other=0.0)
    _refuse(fault_ptr, s_a, BAD_A)
    _refuse(fault_ptr, s_b, BAD_B)
    highest = tl.maximum(s_a, s_b)
    shift = tl.where(highest == float("-inf"), 0.0, highest)
    w_a, w_b = exp((s_a - shift) * LN2), exp((s_b - shift) * LN2)
    total = w_a + w_b
    safe = tl.where(total > 0.0, total, 1.0)
    store_narrow(s_ptr + row, highest + log2(safe), is_row)
    norm = tl.where(total > 0.0, recip(safe), 0.0)
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    inside = is_row[:, None] & (column[None, :] < width)
    v_a = tl.load(va_ptr + at, mask=inside, other=0.0).to(tl.float32)
    v_b = tl.load(vb_ptr + at, mask=inside, other=0.0).to(tl.float32)
    v = (_weighted(v_a, w_a[:, None]) + _weighted(v_b, w_b[:, None])) * norm[:, None]
    store_narrow(v_ptr + at, v, inside)


@implements("merge_state", tier=Tier.PORTABLE)
def merge_state(
    v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A program takes several heads of several tokens."""
    v = torch.empty(v_a.shape, dtype=v_a.dtype, device=v_a.device)
    s = torch.empty(s_a.shape, dtype=torch.float32, device=v_a.device)
    num_rows, width = s.numel(), v.shape[-1]
    if not v.numel():
        return v, s
    padded = power_of_two(width)
    rows = max(1, TILE // padded)
    inputs = (t.contiguous() for t in (v_a, s_a, v_b, s_b))
    merge_rows[(cdiv(num_rows, rows),)](
        *inputs, v, s, fault_word(v.device), num_rows, width, R=rows, D=padded, num_warps=4, **UNFUSED
    )
    return v, s
