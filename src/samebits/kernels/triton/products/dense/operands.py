"""What the products on f32, f16 and bf16 weights share: operands in a weight's type, and the reasons to refuse one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.limits import LARGEST_BF16
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.rows import fault_where, narrow, widen
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two

FLOAT_WEIGHTS = ("f32", "f16", "bf16")
INFINITY = tl.constexpr(float("inf"))

# As numpy names the types in the reference's message.
_TYPE_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def operand_fault(op_name: str, dtype: torch.dtype) -> int:
    """The number of the reason why a value of x is no operand of a product in this type."""
    needed = f"finite {_TYPE_NAMES[dtype]} values"
    return fault(op_name, "x", "NaN, Inf or a value beyond the type's range", needed)


def float_weight(call: OpCall) -> str | None:
    """Serves weights in f32, f16 and bf16."""
    name = call.inputs["weight"].format
    return None if name in FLOAT_WEIGHTS else f"a weight in {name}, not one of {', '.join(FLOAT_WEIGHTS)}"


@triton.jit
def as_operand(x, DTYPE: tl.constexpr):
    """x rounded to DTYPE for use in a product: (its value in float32, whether it is refused)."""
    value = widen(narrow(widen(x), DTYPE))
    if tl.bfloat16 == DTYPE:
        return value, (tl.abs(value) <= LARGEST_BF16) == 0
    return value, (tl.abs(value) < INFINITY) == 0


@triton.jit
def refuse_row(x_row, fault_ptr, code, K, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """A fault where one of the K elements of a row is no operand."""
    refused = tl.zeros([BLOCK], tl.int1)
    first = 0
    while first < K:
        at = first + tl.arange(0, BLOCK)
        _, wrong = as_operand(tl.load(x_row + at, mask=at < K, other=0.0), DTYPE)
        refused = refused | wrong
        first += BLOCK
    fault_where(fault_ptr, code, refused)


@triton.jit
def _narrow(x_ptr, y_ptr, fault_ptr, code, size, stride_x, STORE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + at, mask=at < size, other=0.0)
    value, refused = as_operand(x, y_ptr.dtype.element_ty)
    if STORE:
        tl.store(y_ptr + row * size + at, value.to(y_ptr.dtype.element_ty), mask=at < size)
    tl.store(fault_ptr, code, mask=tl.max(refused.to(tl.int32)) != 0)


def narrowed(x: torch.Tensor, dtype: torch.dtype, op_name: str, multiple: int = 1) -> torch.Tensor:
    """x [T, K] rounded to a 16-bit type, contiguous; x itself where it is that already. A fault where it is no operand.

    Its rows are a multiple of `multiple`; what is in those beyond T is not defined.
    """
    num_rows, size = x.shape
    padded = -(-num_rows // multiple) * multiple
    is_there = x.dtype == dtype and padded == num_rows
    y = x.contiguous() if is_there else torch.empty(padded, size, dtype=dtype, device=x.device)
    if x.numel():
        block = min(power_of_two(size), 4096)
        code, word = operand_fault(op_name, dtype), fault_word(x.device)
        _narrow[(num_rows, cdiv(size, block))](
            x, y, word, code, size, x.stride(0), STORE=not is_there, BLOCK=block, num_warps=8, **UNFUSED
        )
    return y
