"""Norms over rows: rms_norm, fused_add_rms_norm, layer_norm, l2_norm.

A program walks its rows in 16 steps: step i takes elements i * 16 .. i * 16 + 15 of every cut of 256, so a slot's chain
runs inside a thread, and the row stays in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import rsqrt
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import (
    load_wide,
    num_rows,
    row_start,
    rows_of,
    settled_narrow,
    store_narrow,
    sum_of_slots,
    widen,
)
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.rows.row_sum import in_shared_memory, row_sum

WIDEST = 32768  # elements of a row whose cuts one program holds


def cuts_of(width: int) -> tuple[int, int, str, int]:
    """(rows of a program, cuts of them all, assembly of row_sum, warps) for rows of a width.

    With the assembly a thread for each slot, else 8 bytes of float32 a thread and step.
    """
    cuts = power_of_two(cdiv(width, 256))
    height = max(1, 4 // cuts)
    assembly = in_shared_memory(cuts) if height == 1 else ""
    return height, height * cuts, assembly, max(1, height * cuts // (2 if assembly else 4))


@triton.jit
def places(num_rows, K, R: tl.constexpr, CUTS: tl.constexpr):
    """(row int64 [CUTS, 1], columns of step 0 [CUTS, 16], columns there are [CUTS, 1]) of this program's rows."""
    cut = tl.arange(0, CUTS)[:, None]
    row = tl.program_id(0).to(tl.int64) * R + cut // (CUTS // R)
    column = cut % (CUTS // R) * 256 + tl.arange(0, 16)[None, :]
    return row, column, tl.where(row < num_rows, K, 0)


@triton.jit
def of_each_row(value, R: tl.constexpr, CUTS: tl.constexpr):
    """[R] as [CUTS, 1]: every cut gets its row's value."""
    return tl.reshape(tl.broadcast_to(value[:, None], [R, CUTS // R]), [CUTS, 1])


@triton.jit
def sum_of_rows(slots, R: tl.constexpr, ASM: tl.constexpr):
    """The sums of R rows: every cut gets its row's, [CUTS, 1] or [CUTS, 16]; a number where one row has no assembly.

    As a tensor that number had every thread compute a whole row of 32,768: 160 s of compiling.
    """
    if ASM != "":
        return tl.reshape(row_sum(tl.reshape(slots, [slots.shape[0] * 16]), ASM), slots.shape)
    elif R == 1:
        return tl.sum(sum_of_slots(slots, 1), axis=0)
    else:
        return of_each_row(sum_of_slots(slots, R), R, slots.shape[0])


@triton.jit
def load_steps(ptrs, first, width):
    """The 16 steps of the rows that start at ptrs, as a tuple; +0 outside."""
    steps = ()
    for i in tl.static_range(16):
        steps = steps + (load_wide(ptrs + i * 16, first + i * 16 < width),)  # noqa: RUF005  (Triton has no unpacking)
    return steps


@triton.jit(do_not_specialize=["num_rows"])
def norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, num_rows, K, outer, inner, inv_k, eps,
    GROUP: tl.constexpr, R: tl.constexpr, CUTS: tl.constexpr, CENTRED: tl.constexpr, ASM: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    row, first, width = places(num_rows, K, R, CUTS)
    if weight_ptr is not None:
        weights = load_steps(weight_ptr + first, first, width)
    wait_for_previous(CHAINED)
    steps = load_steps(x_ptr + row_start(row, GROUP, outer, inner) + first, first, width)
    if CENTRED:
        slots = tl.zeros([CUTS, 16], tl.float32)
        for i in tl.static_range(16):
            slots += steps[i]
        centre = settle(sum_of_rows(slots, R, ASM)) * inv_k
        centred = ()
        for i in tl.static_range(16):
            centred = centred + (tl.where(first + i * 16 < width, settle(steps[i] - centre), 0.0),)  # noqa: RUF005
        steps = centred
    slots = tl.zeros([CUTS, 16], tl.float32)
    for i in tl.static_range(16):
        slots += steps[i] * steps[i]
    factor = rsqrt(settle(sum_of_rows(slots, R, ASM)) * inv_k + eps)
    for i in tl.static_range(16):
        inside = first + i * 16 < width
        y = settle(steps[i] * factor)
        if weight_ptr is not None:
            y = y * weights[i]
        if bias_ptr is not None:
            y = y + load_wide(bias_ptr + first + i * 16, inside)
        store_narrow(y_ptr + row * K + first + i * 16, y, inside)


@triton.jit
def add_to_residual(x_ptrs, residual_ptrs, first, width):
    """residual += x: (the 16 steps of what was stored, the slots of their squares).

    All loads come before the first store, which none of them could pass.
    """
    totals = ()
    for i in tl.static_range(16):
        inside = first + i * 16 < width
        total = load_wide(residual_ptrs + i * 16, inside) + load_wide(x_ptrs + i * 16, inside)
        totals = totals + (total,)  # noqa: RUF005  (Triton has no unpacking)
    steps, slots = (), tl.zeros(first.shape, tl.float32)
    for i in tl.static_range(16):
        stored = settled_narrow(totals[i], residual_ptrs.dtype.element_ty)
        tl.store(residual_ptrs + i * 16, stored, mask=first + i * 16 < width)
        steps = steps + (widen(stored),)  # noqa: RUF005
        slots += widen(stored) * widen(stored)
    return steps, slots


@triton.jit(do_not_specialize=["num_rows"])
def add_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, num_rows, K, outer, inner, residual_outer, residual_inner, inv_k, eps,
    GROUP: tl.constexpr, RESIDUAL_GROUP: tl.constexpr, R: tl.constexpr, CUTS: tl.constexpr, ASM: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    row, first, width = places(num_rows, K, R, CUTS)
    x_ptrs = x_ptr + row_start(row, GROUP, outer, inner) + first
    residual_ptrs = residual_ptr + row_start(row, RESIDUAL_GROUP, residual_outer, residual_inner) + first
    weights = load_steps(weight_ptr + first, first, width)
    wait_for_previous(CHAINED)
    steps, slots = add_to_residual(x_ptrs, residual_ptrs, first, width)
    factor = rsqrt(settle(sum_of_rows(slots, R, ASM)) * inv_k + eps)
    for i in tl.static_range(16):
        inside = first + i * 16 < width
        y = settle(steps[i] * factor) * weights[i]
        store_narrow(y_ptr + row * K + first + i * 16, y, inside)


def _norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, centred: bool, of_sum: bool
) -> torch.Tensor:
    """`of_sum`: the sum of squares instead of their mean."""
    width = x.shape[-1]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, group, outer, inner = rows_of(x)
    count, (height, cuts, assembly, warps) = num_rows(x), cuts_of(width)
    norm_kernel[(cdiv(count, height),)](
        x, weight, bias, y, count, width, outer, inner, 1.0 if of_sum else 1.0 / width, eps,
        group, height, cuts, centred, assembly, num_warps=warps, **chained(y.device), **UNFUSED,
    )  # fmt: skip
    return y


def too_wide(call: OpCall) -> str | None:
    width = call.inputs["x"].shape[-1]
    return f"rows of {width}: {WIDEST} at most" if isinstance(width, int) and width > WIDEST else None


@implements("rms_norm", tier=Tier.PORTABLE, when=too_wide)
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, eps: float = 1e-5
) -> torch.Tensor:
    return _norm(x, weight, bias, eps, centred=False, of_sum=False)


@implements("layer_norm", tier=Tier.PORTABLE, when=too_wide)
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, eps: float = 1e-5
) -> torch.Tensor:
    return _norm(x, weight, bias, eps, centred=True, of_sum=False)


@implements("l2_norm", tier=Tier.PORTABLE, when=too_wide)
def l2_norm(x: torch.Tensor, *, eps: float = 1e-5) -> torch.Tensor:
    return _norm(x, None, None, eps, centred=False, of_sum=True)


@implements("fused_add_rms_norm", tier=Tier.PORTABLE, when=too_wide)
def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    width = x.shape[-1]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y, residual
    x, group, outer, inner = rows_of(x)
    _, r_group, r_outer, r_inner = rows_of(residual)
    count, (height, cuts, assembly, warps) = num_rows(x), cuts_of(width)
    add_norm_kernel[(cdiv(count, height),)](
        x, residual, weight, y, count, width, outer, inner, r_outer, r_inner, 1.0 / width, eps,
        group, r_group, height, cuts, assembly, num_warps=warps, **chained(y.device), **UNFUSED,
    )  # fmt: skip
    return y, residual
