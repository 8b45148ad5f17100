"""Element by element: add, mul, sigmoid_and_mul, scale, cast, soft_cap."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from samebits.core.numerics.elementary import recip as host_recip
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import sigmoid, soft_capped
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import load_wide, row_start, rows_of, store_narrow
from samebits.kernels.triton.lib.sizes import LARGEST_INT32, cdiv
from samebits.kernels.triton.lib.tensors import DTYPES

BLOCK = 1024  # elements of a program, of one row


@triton.jit
def place(K, num_blocks, BLOCK: tl.constexpr):
    """(row int64, columns [BLOCK]) of this program: rows one after another, each in blocks of fewer than 2^31."""
    program = tl.program_id(0)
    row = (program // num_blocks).to(tl.int64)
    return row, program % num_blocks * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def binary_kernel(
    x_ptr, y_ptr, z_ptr, K, num_blocks, x_outer, x_inner, y_outer, y_inner,
    X_GROUP: tl.constexpr, Y_GROUP: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    row, column = place(K, num_blocks, BLOCK)
    wait_for_previous(CHAINED)
    x = load_wide(x_ptr + row_start(row, X_GROUP, x_outer, x_inner) + column, column < K)
    y = load_wide(y_ptr + row_start(row, Y_GROUP, y_outer, y_inner) + column, column < K)
    if KIND == "add":
        z = x + y
    elif KIND == "mul":
        z = x * y
    else:
        z = x * tl.where(y == y, sigmoid(y), y)  # a NaN stays one
    store_narrow(z_ptr + row * K + column, z, column < K)


@triton.jit
def unary_kernel(
    x_ptr, y_ptr, K, num_blocks, outer, inner, factor, inv_factor,
    GROUP: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    row, column = place(K, num_blocks, BLOCK)
    wait_for_previous(CHAINED)
    y = load_wide(x_ptr + row_start(row, GROUP, outer, inner) + column, column < K)
    if KIND == "scale":
        y = y * factor
    elif KIND == "cap":
        y = tl.where(y == y, soft_capped(y, factor, inv_factor), y)  # a NaN stays one
    store_narrow(y_ptr + row * K + column, y, column < K)


def flat(*tensors: torch.Tensor) -> bool:
    """Return whether all are dense, of one shape and short enough for int32 columns, so that they are one long row."""
    dense = all(x.is_contiguous() and x.shape == tensors[0].shape for x in tensors)
    return dense and tensors[0].numel() <= LARGEST_INT32


def _binary(x: torch.Tensor, y: torch.Tensor, kind: str) -> torch.Tensor:
    """x + y ("add"), x * y ("mul") or x * sigmoid(y) ("sigmoid"), settled, in the type of x."""
    z = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if z.numel() == 0:
        return z
    if flat(x, y):
        width, x_rows, y_rows = x.numel(), (x, 1, 0, 0), (y, 1, 0, 0)
    else:
        width, x_rows, y_rows = x.shape[-1], rows_of(x), rows_of(y)
    num_blocks = cdiv(width, BLOCK)
    binary_kernel[(z.numel() // width * num_blocks,)](
        x_rows[0], y_rows[0], z, width, num_blocks, *x_rows[2:], *y_rows[2:],
        x_rows[1], y_rows[1], kind, BLOCK, num_warps=4, **chained(x.device), **UNFUSED,
    )  # fmt: skip
    return z


def unary(x: torch.Tensor, dtype: torch.dtype, kind: str, factor: float = 1.0, inv_factor: float = 1.0) -> torch.Tensor:
    """x in another type: as it is ("cast"), times a factor ("scale") or capped at it ("cap"); settled."""
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    if y.numel() == 0:
        return y
    width, rows = (x.numel(), (x, 1, 0, 0)) if flat(x) else (x.shape[-1], rows_of(x))
    num_blocks = cdiv(width, BLOCK)
    unary_kernel[(y.numel() // width * num_blocks,)](
        rows[0], y, width, num_blocks, *rows[2:], factor, inv_factor,
        rows[1], kind, BLOCK, num_warps=4, **chained(x.device), **UNFUSED,
    )  # fmt: skip
    return y


@implements("add", tier=Tier.PORTABLE)
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _binary(x, y, "add")


@implements("mul", tier=Tier.PORTABLE)
def mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _binary(x, y, "mul")


@implements("sigmoid_and_mul", tier=Tier.PORTABLE)
def sigmoid_and_mul(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return _binary(x, gate, "sigmoid")


@implements("scale", tier=Tier.PORTABLE)
def scale(x: torch.Tensor, *, factor: float = 1.0) -> torch.Tensor:
    return unary(x, x.dtype, "scale", factor)


@implements("cast", tier=Tier.PORTABLE)
def cast(x: torch.Tensor, *, format: str = "f32") -> torch.Tensor:
    return unary(x, DTYPES[format], "cast")


@implements("soft_cap", tier=Tier.PORTABLE)
def soft_cap(x: torch.Tensor, *, cap: float = 30.0) -> torch.Tensor:
    if cap == 0:
        return unary(x, x.dtype, "cast")
    return unary(x, x.dtype, "cap", cap, float(host_recip(np.array(cap, np.float32))))
