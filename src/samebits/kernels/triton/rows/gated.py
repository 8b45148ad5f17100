"""Gated activations: silu_and_mul, gelu_and_mul, clamped_swiglu."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import (
    EXP_LOWEST,
    EXP_POLY,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    ROUND_MAGIC,
    bits,
    erfc,
    from_bits,
    horner,
    recip,
)
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import load_wide, num_rows, row_start, rows_of, store_narrow
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.rows.elementwise import place
from samebits.ops import activation

SQRT_2_OVER_PI = tl.constexpr(float(activation.SQRT_2_OVER_PI))
SQRT_HALF = tl.constexpr(float(activation.SQRT_HALF))
BLOCK = 1024  # results of a program, of one row


@triton.jit
def sigmoid_of_number(x):
    """sigmoid(x) for x that is a number, without what exp does for arguments above 0."""
    magnitude = tl.abs(x)
    clamped = tl.maximum(-magnitude, EXP_LOWEST)
    shifted = clamped * LOG2E + ROUND_MAGIC
    n = shifted - ROUND_MAGIC
    r = (clamped - n * LN2_HIGH) - n * LN2_LOW
    mantissa = 1.0 + (r + (r * r) * horner(r, EXP_POLY))
    # the magic's own bits leave the word in the shift
    t = tl.where(magnitude > -EXP_LOWEST, 0.0, from_bits(bits(mantissa) + (bits(shifted) << 23)))
    share = recip(1.0 + t)
    return tl.where(x < 0.0, t * share, share)


@triton.jit
def activated(gate, up, alpha, limit, FORM: tl.constexpr):
    """The activation of a gate times up, float32, not settled; a NaN in either stays one.

    FORM: "silu", "tanh" and "erf" of gelu, or "clamped", which alone reads alpha and limit.
    """
    if FORM == "silu":
        return (gate * sigmoid_of_number(gate)) * up
    elif FORM == "tanh":
        cube = (gate * gate) * gate
        u = SQRT_2_OVER_PI * (gate + 0.044715 * cube)
        return (gate * sigmoid_of_number(u + u)) * up
    elif FORM == "erf":
        return ((0.5 * gate) * erfc(-(gate * SQRT_HALF))) * up
    else:
        # comparisons, not minima: those would lose a NaN
        gate = tl.where(gate > limit, limit, gate)
        up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
        return (up + 1.0) * (gate * sigmoid_of_number(settle(alpha * gate)))


@triton.jit
def gated_kernel(
    x_ptr, y_ptr, H, num_blocks, outer, inner, alpha, limit,
    GROUP: tl.constexpr, FORM: tl.constexpr, BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    row, column = place(H, num_blocks, BLOCK)
    wait_for_previous(CHAINED)
    start = x_ptr + row_start(row, GROUP, outer, inner)
    gate = load_wide(start + column, column < H)
    up = load_wide(start + H + column, column < H)
    y = activated(gate, up, alpha, limit, FORM)
    store_narrow(y_ptr + row * H + column, y, column < H)


def _gated(x: torch.Tensor, form: str, alpha: float = 0.0, limit: float = 0.0) -> torch.Tensor:
    half = x.shape[-1] // 2
    y = torch.empty((*x.shape[:-1], half), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, group, outer, inner = rows_of(x)
    num_blocks = cdiv(half, BLOCK)
    gated_kernel[(num_rows(x) * num_blocks,)](
        x, y, half, num_blocks, outer, inner, alpha, limit, group, form, BLOCK,
        num_warps=4, **chained(x.device), **UNFUSED,
    )  # fmt: skip
    return y


@implements("silu_and_mul", tier=Tier.PORTABLE)
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    return _gated(x, "silu")


@implements("gelu_and_mul", tier=Tier.PORTABLE)
def gelu_and_mul(x: torch.Tensor, *, form: str = "tanh") -> torch.Tensor:
    return _gated(x, form)


@implements("clamped_swiglu", tier=Tier.PORTABLE)
def clamped_swiglu(x: torch.Tensor, *, alpha: float = 1.702, limit: float = 7.0) -> torch.Tensor:
    return _gated(x, "clamped", alpha, limit)
