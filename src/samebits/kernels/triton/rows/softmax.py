"""softmax: one program a row where a row is short, else three passes over its cuts by many programs."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from samebits.core.numerics import elementary as canonical
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.elementary import exp, recip, soft_capped
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import store_narrow
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two

SHORT = 4096  # the longest row of the first way
CUT = tl.constexpr(256)
PART = 4096  # elements a program of the second way reads
CUTS_OF_PART = PART // 256

BAD_X = tl.constexpr(fault("softmax", "x", "NaN or +Inf, in x or in x * scale", "finite values or -Inf"))
BAD_SINKS = tl.constexpr(fault("softmax", "sinks", "NaN or +Inf", "finite values or -Inf"))


@triton.jit
def _scores(x_ptr, mask_ptr, at, length, scale, cap, inv_cap, HAS_MASK: tl.constexpr, HAS_CAP: tl.constexpr):
    """(scores, -Inf where masked or outside; whether x * scale is refused) at some places of a row."""
    inside = at < length
    s = tl.load(x_ptr + at, mask=inside, other=float("-inf")).to(tl.float32) * scale
    is_bad = inside & ((s < float("inf")) == 0)
    if HAS_CAP:
        s = soft_capped(s, cap, inv_cap)
    keep = inside
    if HAS_MASK:
        keep = keep & (tl.load(mask_ptr + at, mask=inside, other=0) != 0)
    return tl.where(keep, s, float("-inf")), is_bad


@triton.jit
def _refuse(fault_ptr, is_bad):
    tl.store(fault_ptr, BAD_X, mask=tl.max(is_bad.to(tl.int32), axis=0) != 0)


@triton.jit
def _sink(sinks_ptr, row, fault_ptr, HAS_SINKS: tl.constexpr):
    """The sink's score, -Inf where there is none."""
    sink = tl.full((), float("-inf"), tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + row).to(tl.float32)
        tl.store(fault_ptr, BAD_SINKS, mask=(sink < float("inf")) == 0)
    return sink


@triton.jit
def _cut_sums(
    x_ptr, mask_ptr, first, length, shift, scale, cap, inv_cap,
    HAS_MASK: tl.constexpr, HAS_CAP: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Sums of exp(s - shift) over C cuts from cut `first` on: 16 slots each, a slot is a chain, slots in order."""
    base = (first + tl.arange(0, C))[:, None] * CUT + tl.arange(0, 16)[None, :]
    slots = tl.zeros([C, 16], tl.float32)
    for i in tl.static_range(16):
        s, _ = _scores(x_ptr, mask_ptr, base + i * 16, length, scale, cap, inv_cap, HAS_MASK, HAS_CAP)
        slots = slots + exp(s - shift)
    cuts = tl.zeros([C], tl.float32)
    slot = tl.arange(0, 16)[None, :]
    for j in tl.static_range(16):
        # picking is exact: a sum of one number and zeros
        cuts = cuts + tl.max(tl.where(slot == j, slots, 0.0), axis=1)
    return cuts


@triton.jit
def _normalizer(total):
    is_alive = total > 0.0
    return tl.where(is_alive, recip(tl.where(is_alive, total, 1.0)), 0.0)


@triton.jit
def softmax_row(
    x_ptr, x_stride, mask_ptr, mask_stride, sinks_ptr, y_ptr, fault_ptr, length, scale, cap, inv_cap,
    HAS_MASK: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_CAP: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """A row of at most C cuts."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    if HAS_MASK:
        mask_ptr += row * mask_stride
    at = tl.arange(0, C * CUT)
    s, is_bad = _scores(x_ptr, mask_ptr, at, length, scale, cap, inv_cap, HAS_MASK, HAS_CAP)
    _refuse(fault_ptr, is_bad)
    sink = _sink(sinks_ptr, row, fault_ptr, HAS_SINKS)
    highest = tl.maximum(tl.max(s, axis=0), sink)
    shift = tl.where(highest == float("-inf"), 0.0, highest)
    cuts = _cut_sums(x_ptr, mask_ptr, 0, length, shift, scale, cap, inv_cap, HAS_MASK, HAS_CAP, C)
    total = tl.zeros((), tl.float32)
    for c in tl.static_range(C):
        total = total + tl.max(tl.where(tl.arange(0, C) == c, cuts, 0.0), axis=0)
    y = exp(s - shift) * _normalizer(total + exp(sink - shift))
    store_narrow(y_ptr + row * length + at, y, at < length)


@triton.jit
def part_maximum(
    x_ptr, x_stride, mask_ptr, mask_stride, highest_ptr, fault_ptr, length, scale, cap, inv_cap,
    HAS_MASK: tl.constexpr, HAS_CAP: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """The largest score of a part of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * PART + tl.arange(0, PART)
    if HAS_MASK:
        mask_ptr += row * mask_stride
    s, is_bad = _scores(x_ptr + row * x_stride, mask_ptr, at, length, scale, cap, inv_cap, HAS_MASK, HAS_CAP)
    _refuse(fault_ptr, is_bad)
    tl.store(highest_ptr + row * tl.num_programs(1) + part, tl.max(s, axis=0))


@triton.jit
def _shift_of(highest_ptr, row, sink, P: tl.constexpr):
    """What all scores of a row are lowered by: the maximum over its parts and the sink, 0 where that is -Inf."""
    part = tl.arange(0, P)
    num_parts = tl.num_programs(1)
    parts = tl.load(highest_ptr + row * num_parts + part, mask=part < num_parts, other=float("-inf"))
    highest = tl.maximum(tl.max(parts, axis=0), sink)
    return tl.where(highest == float("-inf"), 0.0, highest)


@triton.jit
def part_sums(
    x_ptr, x_stride, mask_ptr, mask_stride, sinks_ptr, highest_ptr, cuts_ptr, fault_ptr, length, scale, cap, inv_cap,
    HAS_MASK: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_CAP: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """The sums of the cuts of a part."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if HAS_MASK:
        mask_ptr += row * mask_stride
    shift = _shift_of(highest_ptr, row, _sink(sinks_ptr, row, fault_ptr, HAS_SINKS), P)
    cuts = _cut_sums(
        x_ptr + row * x_stride, mask_ptr, part * C, length, shift, scale, cap, inv_cap, HAS_MASK, HAS_CAP, C
    )
    tl.store(cuts_ptr + (row * tl.num_programs(1) + part) * C + tl.arange(0, C), cuts)


@triton.jit
def part_results(
    x_ptr, x_stride, mask_ptr, mask_stride, sinks_ptr, highest_ptr, cuts_ptr, y_ptr, fault_ptr, length, scale, cap,
    inv_cap, HAS_MASK: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_CAP: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
    PARTS: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """The results of a part; every program adds up the cuts of the row for itself, in order."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if HAS_MASK:
        mask_ptr += row * mask_stride
    sink = _sink(sinks_ptr, row, fault_ptr, HAS_SINKS)
    shift = _shift_of(highest_ptr, row, sink, P)
    total = tl.zeros((), tl.float32)
    for i in range(PARTS):
        for c in tl.static_range(C):
            total = total + tl.load(cuts_ptr + (row * PARTS + i) * C + c)
    norm = _normalizer(total + exp(sink - shift))
    at = part * PART + tl.arange(0, PART)
    s, _ = _scores(x_ptr + row * x_stride, mask_ptr, at, length, scale, cap, inv_cap, HAS_MASK, HAS_CAP)
    y = exp(s - shift) * norm
    store_narrow(y_ptr + row * length + at, y, at < length)


def _rows(x: torch.Tensor) -> torch.Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _in_parts(
    x: torch.Tensor,
    mask: torch.Tensor | None,
    mask_stride: int,
    sinks: torch.Tensor | None,
    y: torch.Tensor,
    factors: tuple[float, float, float],
    flags: dict[str, bool],
) -> None:
    """Maxima, sums of cuts, results: three launches."""
    num_rows, length = x.shape
    parts = cdiv(length, PART)
    highest = torch.empty((num_rows, parts), dtype=torch.float32, device=x.device)
    cuts = torch.empty((num_rows, parts, CUTS_OF_PART), dtype=torch.float32, device=x.device)
    grid, word = (num_rows, parts), fault_word(x.device)
    source = (x, x.stride(0), mask, mask_stride)
    sizes = {**flags, "C": CUTS_OF_PART, "P": power_of_two(parts), **UNFUSED}
    seen = {name: flags[name] for name in ("HAS_MASK", "HAS_CAP")}
    part_maximum[grid](*source, highest, word, length, *factors, **seen, PART=PART, num_warps=8, **UNFUSED)
    part_sums[grid](*source, sinks, highest, cuts, word, length, *factors, **sizes, num_warps=4)
    part_results[grid](
        *source, sinks, highest, cuts, y, word, length, *factors, **sizes, PARTS=parts, PART=PART, num_warps=8
    )


@implements("softmax", tier=Tier.PORTABLE)
def softmax(
    x: torch.Tensor,
    mask: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    *,
    scale: float,
    soft_cap: float,
) -> torch.Tensor:
    """The bits of row order do not depend on which way a row goes."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return y
    rows, length = _rows(x), x.shape[-1]
    mask_stride = 0
    if mask is not None:
        mask = mask.contiguous().view(torch.uint8)
        mask_stride = length if mask.dim() == x.dim() and x.dim() > 1 else 0
    sinks = None if sinks is None else sinks.contiguous()
    cap = np.float32(soft_cap)
    inv_cap = float(canonical.recip(cap.reshape(1))[0]) if soft_cap else 0.0
    factors = (float(np.float32(scale)), float(cap), inv_cap)
    flags = {"HAS_MASK": mask is not None, "HAS_SINKS": sinks is not None, "HAS_CAP": soft_cap != 0}
    if length > SHORT:
        _in_parts(rows, mask, mask_stride, sinks, y, factors, flags)
        return y
    num_cuts = power_of_two(cdiv(length, 256))
    softmax_row[(len(rows),)](
        rows, rows.stride(0), mask, mask_stride, sinks, y, fault_word(x.device), length, *factors,
        **flags, C=num_cuts, num_warps=min(8, max(1, num_cuts // 2)), **UNFUSED,
    )  # fmt: skip
    return y
