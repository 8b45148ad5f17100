"""gated_rms_norm: the norm of a row, or of each part of it, and a gate before or after it.

A program walks its parts of rows as norm.py's walk rows.
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
from samebits.kernels.triton.lib.rows import load_wide, num_rows, row_start, rows_of, store_narrow
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.rows.gated import sigmoid_of_number
from samebits.kernels.triton.rows.norm import WIDEST, cuts_of, load_steps, places, sum_of_rows


@triton.jit(do_not_specialize=["num_rows"])
def gated_norm_kernel(
    x_ptr, gate_ptr, weight_ptr, y_ptr, num_rows, K, outer, inner, gate_outer, gate_inner, inv_k, eps,
    GROUP: tl.constexpr, GATE_GROUP: tl.constexpr, PARTS: tl.constexpr, R: tl.constexpr, CUTS: tl.constexpr,
    GATE_FIRST: tl.constexpr, ASM: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Rows are parts of rows here: K elements, PARTS of them with weights of their own."""
    row, first, width = places(num_rows, K, R, CUTS)
    weights = load_steps(weight_ptr + row % PARTS * K + first, first, width)
    wait_for_previous(CHAINED)
    steps = load_steps(x_ptr + row_start(row, GROUP, outer, inner) + first, first, width)
    gate_ptrs = gate_ptr + row_start(row, GATE_GROUP, gate_outer, gate_inner) + first
    if GATE_FIRST:
        gated = ()
        for i in tl.static_range(16):
            gate = load_wide(gate_ptrs + i * 16, first + i * 16 < width)
            gated = gated + (settle(steps[i] * settle(gate * sigmoid_of_number(gate))),)  # noqa: RUF005
        steps = gated
    slots = tl.zeros([CUTS, 16], tl.float32)
    for i in tl.static_range(16):
        slots += steps[i] * steps[i]
    factor = rsqrt(settle(sum_of_rows(slots, R, ASM)) * inv_k + eps)
    for i in tl.static_range(16):
        inside = first + i * 16 < width
        y = settle(steps[i] * factor) * weights[i]
        if not GATE_FIRST:
            gate = load_wide(gate_ptrs + i * 16, inside)
            y = settle(y) * settle(gate * sigmoid_of_number(gate))
        store_narrow(y_ptr + row * K + first + i * 16, y, inside)


def _too_wide(call: OpCall) -> str | None:
    width, groups = call.inputs["x"].shape[-1], call.attrs["groups"]
    is_too_wide = isinstance(width, int) and width > WIDEST * groups
    return f"parts of {width // groups}: {WIDEST} at most" if is_too_wide else None


@implements("gated_rms_norm", tier=Tier.PORTABLE, when=_too_wide)
def gated_rms_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float = 1e-5,
    gate_first: bool = False,
    groups: int = 1,
) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    width = x.shape[-1] // groups
    x, group, outer, inner = rows_of(x.unflatten(-1, (groups, width)))
    gate, gate_group, gate_outer, gate_inner = rows_of(gate.unflatten(-1, (groups, width)))
    count, (height, cuts, assembly, warps) = num_rows(x), cuts_of(width)
    gated_norm_kernel[(cdiv(count, height),)](
        x, gate, weight, y, count, width, outer, inner, gate_outer, gate_inner, 1.0 / width, eps,
        group, gate_group, groups, height, cuts, gate_first, assembly, num_warps=warps, **chained(y.device), **UNFUSED,
    )  # fmt: skip
    return y
