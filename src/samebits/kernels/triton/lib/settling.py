"""Settled numbers on the device: what every kernel stores, see core/numerics/settling.py.

Kernels rely on it: what they read is +0 or of magnitude 2^-50 and more, so no product and no sum of products of theirs
is a subnormal, and operands need no lower bound.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.core.numerics import settling as canonical

SMALLEST = tl.constexpr(float(canonical.SMALLEST))
LARGEST_F16_ZERO = tl.constexpr(2.0**-25)  # half of the smallest float16: rounds to zero


@triton.jit
def settle(x):
    """float32 x with +0 in the place of -0 and of every magnitude below 2^-50; NaN and Inf stay."""
    return tl.where(tl.abs(x) < SMALLEST, 0.0, x)


@triton.jit
def settle_to(x, dtype: tl.constexpr):
    """settle(x) for a float type that it is rounded to next: what float16 rounds to zero is +0."""
    if dtype == tl.float16:
        return tl.where(tl.abs(x) <= LARGEST_F16_ZERO, 0.0, x)
    return settle(x)
