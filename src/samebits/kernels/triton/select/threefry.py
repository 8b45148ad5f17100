"""Threefry-2x32 with 20 rounds, and the Gumbel noise of sampling made of it. Launch with UNFUSED."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.core.numerics import counter
from samebits.kernels.triton.lib.elementary import log

PARITY = tl.constexpr(int(counter.PARITY))
ROTATIONS = tl.constexpr(counter.ROTATIONS)


@triton.jit
def _round(x0, x1, ROTATION: tl.constexpr):
    x0 = x0 + x1
    return x0, ((x1 << ROTATION) | (x1 >> (32 - ROTATION))) ^ x0


@triton.jit
def threefry(k0, k1, x0, x1):
    """Two uint32 words of a key (k0, k1) and a counter (x0, x1), all uint32."""
    k2 = k0 ^ k1 ^ tl.full((), PARITY, tl.uint32)
    x0, x1 = x0 + k0, x1 + k1
    for block in tl.static_range(5):
        for i in tl.static_range(4):
            x0, x1 = _round(x0, x1, ROTATIONS[(block % 2) * 4 + i])
        k0, k1, k2 = k1, k2, k0
        x0 = x0 + k0
        x1 = x1 + k1 + tl.full((), block + 1, tl.uint32)
    return x0, x1


@triton.jit
def gumbel(seed_low, seed_high, sample_index, position, token):
    """float32 -log(-log u) for int32 tokens, of a request's seed (uint32), sample and position (int32)."""
    k0, k1 = threefry(seed_low, seed_high, sample_index.to(tl.uint32), position.to(tl.uint32))
    word, _ = threefry(k0, k1, token.to(tl.uint32), tl.full((), 0, tl.uint32))
    u = ((word >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    return -log(-log(u))
