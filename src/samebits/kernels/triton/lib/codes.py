"""Codes and scales of block formats as numbers."""

from __future__ import annotations

import triton
import triton.language as tl

E4M3_BIAS = tl.constexpr(2.0**8)  # what its exponents are below those of float16


@triton.jit
def e4m3(byte):
    """float32 of an e4m3 number in an int32; its NaN is not one here.

    By way of float16, whose subnormals every device converts; as a pattern of float32 some would be subnormal there.
    """
    pattern = ((byte & 0x7F) << 7) | ((byte & 0x80) << 8)
    return pattern.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * E4M3_BIAS
