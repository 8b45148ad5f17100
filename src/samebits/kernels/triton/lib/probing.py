"""What a device's arithmetic is asked before it is trusted."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.kernels.triton.lib.registry import UNFUSED


@triton.jit
def _multiply_add(a_ptr, b_ptr, c_ptr, sum_ptr, product_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    product = tl.load(a_ptr + at) * tl.load(b_ptr + at)
    tl.store(sum_ptr + at, product + tl.load(c_ptr + at))
    tl.store(product_ptr + at, product)


def multiply_add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(a * b, a * b + c) of float32 vectors whose length is a power of two, each operation rounded."""
    products, sums = torch.empty_like(a), torch.empty_like(a)
    _multiply_add[(1,)](a, b, c, sums, products, len(a), **UNFUSED)
    return products, sums
