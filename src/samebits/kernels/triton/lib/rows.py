"""What the kernels on rows share: how a tensor is walked row by row, and sums in row order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import bits, from_bits
from samebits.kernels.triton.lib.registry import INTERPRETED
from samebits.kernels.triton.lib.settling import settle_to

# The interpreter cuts bfloat16 off instead of rounding, so there the bits are made by hand.
BF16_BY_HAND = tl.constexpr(INTERPRETED)

Rows = tuple[torch.Tensor, int, int, int]


def rows_of(x: torch.Tensor) -> Rows:
    """(x, rows in a group, stride of a group, stride of a row in it), the leading axes of x [..., K] as rows.

    Row r starts at r // group * outer + r % group * inner. A view that needs more than that is copied.
    """
    axes = [(size, x.stride(i)) for i, size in enumerate(x.shape[:-1]) if size != 1]
    joined: list[tuple[int, int]] = []
    for size, stride in axes:
        if joined and joined[-1][1] == size * stride:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    if (x.shape[-1] > 1 and x.stride(-1) != 1) or len(joined) > 2:
        return rows_of(x.contiguous())
    if len(joined) < 2:
        return x, 1, joined[0][1] if joined else 0, 0
    return x, joined[1][0], joined[0][1], joined[1][1]


def num_rows(x: torch.Tensor) -> int:
    return x.numel() // x.shape[-1] if x.shape[-1] else 0


@triton.jit
def wide_bf16(x):
    """bfloat16 as float32: the upper half of its bits."""
    return from_bits(x.to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def widen(x):
    """The exact float32 values of a float tensor."""
    if BF16_BY_HAND and x.dtype == tl.bfloat16:
        return wide_bf16(x)
    return x.to(tl.float32)


@triton.jit
def narrow(x, dtype: tl.constexpr):
    """float32 to a float type, to nearest even; not settled."""
    if BF16_BY_HAND and dtype == tl.bfloat16:
        pattern = bits(x)
        rounded = tl.where(x == x, pattern + 0x7FFF + ((pattern >> 16) & 1), pattern) >> 16
        return rounded.to(tl.int16).to(tl.bfloat16, bitcast=True)
    return x.to(dtype)


@triton.jit
def settled_narrow(x, dtype: tl.constexpr):
    """float32 to a float type, settled and to nearest even: what a result of an op is stored as."""
    return narrow(settle_to(x, dtype), dtype)


@triton.jit
def load_wide(pointers, mask):
    """float32 values, +0 where the mask is false.

    bfloat16 is widened by hand: LLVM takes what it holds for something that float16 holds too, and computes a sum or
    product with float16 there if the result is stored as float16.
    """
    x = tl.load(pointers, mask=mask, other=0.0)
    return wide_bf16(x) if x.dtype == tl.bfloat16 else widen(x)


@triton.jit
def store_narrow(pointers, x, mask):
    """float32 x, settled and rounded to the type that the pointers point to."""
    tl.store(pointers, settled_narrow(x, pointers.dtype.element_ty), mask=mask)


@triton.jit
def fault_where(fault_ptr, code, refused):
    """Stores a fault's number where any of `refused` is true, without a reduction."""
    tl.store(fault_ptr + refused.to(tl.int32) * 0, code, mask=refused)


@triton.jit
def row_start(row, GROUP: tl.constexpr, outer, inner):
    """The offset of a row, see rows_of; `row` is int64."""
    if GROUP == 1:
        return row * outer
    return row // GROUP * outer + row % GROUP * inner


@triton.jit
def _column(x, at):
    """Column `at` of [R, N] as [R], found by an integer sum: exact, and no exchange between warps."""
    column = tl.arange(0, x.shape[1])[None, :]
    return from_bits(tl.sum(tl.where(column == at, bits(x), 0), axis=1))


MOST_UNROLLED = tl.constexpr(32)  # columns of a chain: unrolled, 128 of them twice in a kernel compiled for 90 s


@triton.jit
def chain_columns(x):
    """float32 [R, N] to [R]: the columns added in order."""
    total = tl.zeros([x.shape[0]], tl.float32)
    if x.shape[1] > MOST_UNROLLED:
        for j in range(x.shape[1]):
            total = total + _column(x, j)
    else:
        for j in tl.static_range(x.shape[1]):
            total = total + _column(x, j)
    return total


@triton.jit
def _as_row(x):
    """[N] as [1, N] that every warp holds: one exchange, so that picking columns needs none."""
    at = tl.arange(0, x.shape[0])
    return from_bits(tl.sum(tl.where(at[:, None] == at[None, :], bits(x)[:, None], 0), axis=0))[None, :]


@triton.jit
def sum_of_slots(slots, R: tl.constexpr):
    """float32 [R * C, 16], the slots of C cuts of each of R rows, to [R]: slots in order, then cuts in order."""
    cuts = chain_columns(slots)
    if R == 1:
        return chain_columns(_as_row(cuts))
    return chain_columns(tl.reshape(cuts, [R, slots.shape[0] // R]))
