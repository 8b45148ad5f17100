"""top_k, top_k_mask_logits and argmax: a few launches an op, none of which waits for another on the host."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.select.finish import finish_count, keep_winners, sort_winners
from samebits.kernels.triton.select.keys import LOWEST, index_of, place_of
from samebits.kernels.triton.select.narrow import CAPACITY
from samebits.kernels.triton.select.passes import LAST, STATE_FIELDS, narrow_count

NARROW_WARPS = 16
NARROW_ROWS = 4
FINISH_WARPS = 8
BLOCK = 4096  # elements a program of the parallel passes reads
BLOCK_WARPS = 8

NAN = {op: fault(op, "x", "NaN", "no NaN") for op in ("top_k", "top_k_mask_logits", "argmax")}


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """x [..., K] as [rows, K], the last axis without gaps; a copy only where strides need one."""
    rows = x.reshape(-1, x.shape[-1]) if x.numel() else x.new_empty((x.shape[:-1].numel(), x.shape[-1]))
    return rows if rows.stride(-1) == 1 or rows.shape[-1] <= 1 else rows.contiguous()


def index_bits(length: int) -> int:
    return max(1, (length - 1).bit_length())


def narrow_tile(x: torch.Tensor) -> dict[str, int]:
    """Every thread has 16 bytes of a row of the tile, so that sums over its rows stay in a thread."""
    return {"ROWS": NARROW_ROWS, "COLS": NARROW_WARPS * 32 * 16 // x.element_size(), "num_warps": NARROW_WARPS}


def new_state(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(state, lists) of the rows of x; see select_passes.py."""
    make = {"dtype": torch.int64, "device": x.device}
    return torch.empty((len(x), STATE_FIELDS), **make), torch.empty((len(x), CAPACITY), **make)


def _find_last(op: str, x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    state, lists = new_state(x)
    narrow_count[(len(x),)](
        x, x.stride(0), None, None, None, None, state, lists, fault_word(x.device), k,
        NAN_CODE=NAN[op], LENGTH=x.shape[1], PER_ROW=False, BITS=index_bits(x.shape[1]), FIELDS=STATE_FIELDS,
        **narrow_tile(x), **UNFUSED,
    )  # fmt: skip
    finish_count[(len(x),)](
        None,
        state,
        lists,
        PER_ROW=False,
        BITS=index_bits(x.shape[1]),
        FIELDS=STATE_FIELDS,
        num_warps=FINISH_WARPS,
        **UNFUSED,
    )
    return state, lists


def _small_k(call: OpCall) -> str | None:
    k = call.attrs["k"]
    return None if k <= CAPACITY else f"k is {k}; top_k of triton sorts at most {CAPACITY}"


@implements("top_k", tier=Tier.PORTABLE, when=_small_k)
def top_k(x: torch.Tensor, *, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Narrowed to a list, the k winners taken out of it and sorted."""
    values = torch.empty((*x.shape[:-1], k), dtype=x.dtype, device=x.device)
    indices = torch.empty(values.shape, dtype=torch.int32, device=x.device)
    rows = rows_of(x)
    if not len(rows):
        return values, indices
    state, lists = _find_last("top_k", rows, k)
    winners = torch.empty((len(rows), k), dtype=torch.int64, device=x.device)
    grid = (len(rows),)
    keep_winners[grid](state, lists, winners, k, FIELDS=STATE_FIELDS, num_warps=FINISH_WARPS, **UNFUSED)
    width = max(2, power_of_two(k))
    sort_winners[grid](
        rows, rows.stride(0), winners, values, indices, k,
        BITS=index_bits(rows.shape[1]), WIDTH=width, num_warps=min(8, max(1, width // 256)), **UNFUSED,
    )  # fmt: skip
    return values, indices


@triton.jit
def mask_rows(
    x_ptr, stride, y_ptr, state_ptr, length, BITS: tl.constexpr, BLOCK: tl.constexpr, FIELDS: tl.constexpr,
):  # fmt: skip
    """A block of a row: what ranks after the last place kept becomes -Inf."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < length, other=0.0).to(tl.float32)
    is_kept = place_of(x, at, length, BITS) >= tl.load(state_ptr + row * FIELDS + LAST)
    y = tl.where(is_kept, x, float("-inf"))
    tl.store(y_ptr + row * length + at, y.to(y_ptr.dtype.element_ty), mask=at < length)


@implements("top_k_mask_logits", tier=Tier.PORTABLE)
def top_k_mask_logits(x: torch.Tensor, *, k: int) -> torch.Tensor:
    """The k-th place of every row, then one parallel pass that writes."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows = rows_of(x)
    if not rows.numel():
        return y
    state, _ = _find_last("top_k_mask_logits", rows, min(k, rows.shape[1] + 1))
    bits = index_bits(rows.shape[1])
    mask_rows[(len(rows), cdiv(rows.shape[1], BLOCK))](
        rows, rows.stride(0), y, state, rows.shape[1],
        BITS=bits, BLOCK=BLOCK, FIELDS=STATE_FIELDS, num_warps=BLOCK_WARPS, **UNFUSED,
    )  # fmt: skip
    return y


@triton.jit
def first_of_block(
    x_ptr, stride, best_ptr, fault_ptr, length, CODE: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """The first place of a block of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < length, other=0.0).to(tl.float32)
    tl.store(best_ptr + row * tl.num_programs(1) + part, tl.max(place_of(x, at, length, BITS), axis=0))
    tl.store(fault_ptr, CODE, mask=tl.max((x != x).to(tl.int32), axis=0) != 0)


@triton.jit
def first_of_row(best_ptr, index_ptr, num_parts, BITS: tl.constexpr, PARTS: tl.constexpr):
    """The index of the first of a row's places."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    best = tl.load(best_ptr + row * num_parts + part, mask=part < num_parts, other=LOWEST)
    tl.store(index_ptr + row, index_of(tl.max(best, axis=0), BITS))


@implements("argmax", tier=Tier.PORTABLE)
def argmax(x: torch.Tensor) -> torch.Tensor:
    """The first place of every block, then of the row."""
    indices = torch.empty(x.shape[:-1], dtype=torch.int32, device=x.device)
    rows = rows_of(x)
    if not len(rows):
        return indices
    parts, bits = cdiv(rows.shape[1], BLOCK), index_bits(rows.shape[1])
    best = torch.empty((len(rows), parts), dtype=torch.int64, device=x.device)
    first_of_block[(len(rows), parts)](
        rows, rows.stride(0), best, fault_word(x.device), rows.shape[1],
        CODE=NAN["argmax"], BITS=bits, BLOCK=BLOCK, num_warps=BLOCK_WARPS, **UNFUSED,
    )  # fmt: skip
    first_of_row[(len(rows),)](best, indices, parts, BITS=bits, PARTS=power_of_two(parts), num_warps=1, **UNFUSED)
    return indices
