"""Activations in int8 blocks of 32, as docs/numerics.md, section 4 states them."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import bits, from_bits, recip, round_to_int, sigmoid
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.settling import settle
from samebits.ops import quantize

INV_127 = tl.constexpr(float(quantize.INV_127))
SMALLEST_AMAX = tl.constexpr(float(quantize.SMALLEST_AMAX))
LARGEST_AMAX = tl.constexpr(float(quantize.LARGEST_AMAX))
REFUSED = ("x", "NaN, Inf or a magnitude above 2^80", "finite values")  # of an op that makes int8 blocks of its x
QUANTIZE_FAULT = fault("quantize_q8", *REFUSED)


@triton.jit
def largest_magnitude(x, axis: tl.constexpr):
    """max |x| along an axis, NaN above all: magnitudes are ordered as their patterns are."""
    return from_bits(tl.max(bits(x) & 0x7FFFFFFF, axis=axis))


@triton.jit
def block_factors(amax):
    """(what to multiply by for a code, scale, refused) of a block with that largest magnitude."""
    alive = amax >= SMALLEST_AMAX
    factor = tl.where(alive, 127.0 * recip(tl.where(alive, amax, 1.0)), 0.0)
    # NaN compares false
    return factor, tl.where(alive, amax * INV_127, 0.0), (amax <= LARGEST_AMAX) == 0


@triton.jit
def int8_blocks(x):
    """float32 [..., 32] to (codes int8 [..., 32], scale float32 [...], refused bool [...]) along the last axis."""
    axis: tl.constexpr = len(x.shape) - 1
    factor, scale, refused = block_factors(largest_magnitude(x, axis))
    return round_to_int(x * tl.expand_dims(factor, axis)).to(tl.int8), scale, refused


@triton.jit
def silu_int8_blocks(gate, up):
    """int8_blocks of (gate * sigmoid(gate)) * up."""
    return int8_blocks(settle((gate * sigmoid(gate)) * up))


@triton.jit
def laid_block(token, block, width):
    """Which of the laid-out blocks a token's block is: kernels/cuda/products/laid_out.py."""
    return block * width + token.to(tl.int32)


@triton.jit
def laid_element(j):
    """Where element j of a laid-out block lies: words t and 4 + t of the eight side by side."""
    return j % 16 // 4 * 8 + j // 16 * 4 + j % 4


@triton.jit
def laid_bytes(laid, j):
    """int32 [blocks, 32]: where elements j [1, 32] of laid-out blocks [blocks, 1] lie, four to a word."""
    places = laid * 32 + laid_element(j)
    return tl.max_contiguous(tl.multiple_of(places, [1, 4]), [1, 4])  # no compiler sees that by itself
