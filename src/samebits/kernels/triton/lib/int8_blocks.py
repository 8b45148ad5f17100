"""Activations in int8 blocks of 32, as docs/numerics.md, section 4 states them."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import recip, round_to_int
from samebits.ops import quantize

INV_127 = tl.constexpr(float(quantize.INV_127))
SMALLEST_AMAX = tl.constexpr(float(quantize.SMALLEST_AMAX))
LARGEST_AMAX = tl.constexpr(float(quantize.LARGEST_AMAX))


@triton.jit
def int8_blocks(x):
    """float32 [..., 32] to (codes int8 [..., 32], scale float32 [...], refused bool [...]) along the last axis."""
    axis: tl.constexpr = len(x.shape) - 1
    amax = tl.max(tl.abs(x), axis=axis)
    # NaN compares false: tl.max may drop it, so every element is asked
    refused = tl.max(tl.where(tl.abs(x) <= LARGEST_AMAX, 0, 1), axis=axis) != 0
    alive = amax >= SMALLEST_AMAX
    to_code = tl.where(alive, 127.0 * recip(tl.where(alive, amax, 1.0)), 0.0)
    codes = round_to_int(x * tl.expand_dims(to_code, axis)).to(tl.int8)
    return codes, tl.where(alive, amax * INV_127, 0.0), refused
