"""What the products on f32, f16 and bf16 weights share: operands in a weight's type, and the reasons to refuse one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.kernels.record import Request
from samebits.kernels.triton.faults import fault, fault_word
from samebits.kernels.triton.registry import INTERPRETED, UNFUSED

ON_AMD = torch.version.hip is not None
FLOAT_WEIGHTS = ("f32", "f16", "bf16")
SMALLEST_BF16 = tl.constexpr(2.0**-63)
LARGEST_BF16 = tl.constexpr(2.0**63)
EMULATE = tl.constexpr(INTERPRETED)
INFINITY = tl.constexpr(float("inf"))

# As numpy names the types in the reference's message.
_TYPE_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def operand_fault(op_name: str, dtype: torch.dtype) -> int:
    """The number of the reason why a value of x is no operand of a product in this type."""
    needed = f"finite {_TYPE_NAMES[dtype]} values"
    return fault(op_name, "x", "NaN, Inf or a value beyond the type's range", needed)


def float_weight(request: Request) -> str | None:
    """Serves weights in f32, f16 and bf16."""
    name = request.inputs["weight"].format
    return None if name in FLOAT_WEIGHTS else f"a weight in {name}, not one of {', '.join(FLOAT_WEIGHTS)}"


@triton.jit
def narrow(x, DTYPE: tl.constexpr):
    """float32 to DTYPE, to nearest even. The interpreter cuts bfloat16 off instead, so there the bits are rounded."""
    if EMULATE and tl.bfloat16 == DTYPE:
        pattern = x.to(tl.int32, bitcast=True)
        rounded = (pattern + 0x7FFF + ((pattern >> 16) & 1)) & -65536
        return tl.where(x == x, rounded.to(tl.float32, bitcast=True), x).to(DTYPE)
    return x.to(DTYPE)


@triton.jit
def as_operand(x, DTYPE: tl.constexpr):
    """x rounded to DTYPE for use in a product: (its value in float32, whether it is refused)."""
    value = narrow(x.to(tl.float32), DTYPE).to(tl.float32)
    magnitude = tl.abs(value)
    if tl.bfloat16 == DTYPE:
        return tl.where(magnitude < SMALLEST_BF16, 0.0, value), (magnitude <= LARGEST_BF16) == 0
    return value, (magnitude < INFINITY) == 0


@triton.jit
def _narrow(x_ptr, y_ptr, fault_ptr, code, size, stride_x, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + at, mask=at < size, other=0.0)
    value = narrow(x.to(tl.float32), y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * size + at, value, mask=at < size)
    refused = (tl.abs(value.to(tl.float32)) < INFINITY) == 0
    tl.store(fault_ptr, code, mask=tl.max(refused.to(tl.int32)) != 0)


def narrowed(x: torch.Tensor, dtype: torch.dtype, op_name: str, multiple: int = 1) -> torch.Tensor:
    """x [T, K] rounded to a 16-bit type, contiguous; x itself where it is that already.

    Its rows are a multiple of `multiple`; what is in those beyond T is not defined.
    """
    num_rows, size = x.shape
    padded = -(-num_rows // multiple) * multiple
    if x.dtype == dtype and padded == num_rows:
        return x.contiguous()
    y = torch.empty(padded, size, dtype=dtype, device=x.device)
    if x.numel():
        block = min(triton.next_power_of_2(size), 4096)
        grid = (triton.cdiv(size, block), num_rows)
        word = fault_word(x.device)
        _narrow[grid](x, y, word, operand_fault(op_name, dtype), size, x.stride(0), BLOCK=block, num_warps=8, **UNFUSED)
    return y
