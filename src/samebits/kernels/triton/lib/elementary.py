"""The canonical elementary functions of docs/numerics.md, for float32 tensors. Launch with UNFUSED.

The reference settles squares, and the argument of exp: what that drops is too small to change the sum it goes into, so
it is left out here.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.core.numerics import elementary as canonical
from samebits.kernels.triton.lib.settling import settle

LOG2E = tl.constexpr(float(canonical.LOG2E))
LN2_HIGH = tl.constexpr(float(canonical.LN2_HIGH))
LN2_LOW = tl.constexpr(float(canonical.LN2_LOW))
ROUND_MAGIC = tl.constexpr(float(canonical.ROUND_MAGIC))
ROUND_MAGIC_BITS = tl.constexpr(int(canonical.ROUND_MAGIC_BITS))
SQRT_HALF_BITS = tl.constexpr(int(canonical.SQRT_HALF_BITS))
EXP_LOWEST = tl.constexpr(float(canonical.EXP_LOWEST))
EXP_HIGHEST = tl.constexpr(float(canonical.EXP_HIGHEST))
EXP_POLY = tl.constexpr(canonical.EXP_POLY)
LOG_POLY = tl.constexpr(canonical.LOG_POLY)
TANH_POLY = tl.constexpr(canonical.TANH_POLY)
ERF_POLY = tl.constexpr(canonical.ERF_POLY)
ERFC_POLY = tl.constexpr(canonical.ERFC_POLY)


@triton.jit
def bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def from_bits(pattern):
    return pattern.to(tl.float32, bitcast=True)


@triton.jit
def horner(x, COEFFICIENTS: tl.constexpr):
    """c0 + x*(c1 + x*(c2 + ...)), each step one multiplication and one addition."""
    count: tl.constexpr = len(COEFFICIENTS.value)
    total = tl.full(x.shape, COEFFICIENTS[count - 1], tl.float32)
    for i in tl.static_range(1, count):
        total = total * x + COEFFICIENTS[count - 1 - i]
    return total


@triton.jit
def round_to_int(x):
    """The nearest integer, half to even, as float32; for |x| < 2^22."""
    return (x + ROUND_MAGIC) - ROUND_MAGIC


@triton.jit
def exp(x):
    """e^x: +0 below -34.5, +inf above 88."""
    clamped = tl.minimum(tl.maximum(x, EXP_LOWEST), EXP_HIGHEST)
    shifted = clamped * LOG2E + ROUND_MAGIC
    n = shifted - ROUND_MAGIC
    r = (clamped - n * LN2_HIGH) - n * LN2_LOW
    mantissa = 1.0 + (r + (r * r) * horner(r, EXP_POLY))
    result = from_bits(bits(mantissa) + ((bits(shifted) - ROUND_MAGIC_BITS) << 23))
    result = tl.where(x < EXP_LOWEST, 0.0, result)
    result = tl.where(x > EXP_HIGHEST, float("inf"), result)
    return tl.where(x != x, x, result)


@triton.jit
def recip(x):
    """1/x for 2^-100 <= x <= 2^100; at most 1 for x >= 1."""
    y = from_bits(0x7EF311C7 - bits(x))
    for _ in tl.static_range(4):
        y = y + y * (1.0 - x * y)
    return y


@triton.jit
def rsqrt(x):
    """1/sqrt(x) for x >= 2^-100; finite at 0."""
    y = from_bits(0x5F3759DF - (bits(x) >> 1))
    for _ in tl.static_range(3):
        y = y + (0.5 * y) * (1.0 - (x * y) * y)
    return y


@triton.jit
def _log1p_poly(f):
    f2 = f * f
    return f - (0.5 * f2 - (f2 * f) * horner(f, LOG_POLY))


@triton.jit
def _split_log(x):
    exponent = (bits(x) - SQRT_HALF_BITS) >> 23
    return exponent.to(tl.float32), from_bits(bits(x) - (exponent << 23)) - 1.0


@triton.jit
def log(x):
    """ln x for normal x > 0; -inf at 0."""
    e, f = _split_log(x)
    result = e * LN2_HIGH + (e * LN2_LOW + _log1p_poly(f))
    return tl.where(x == 0.0, float("-inf"), result)


@triton.jit
def log2(x):
    """log2 x for normal x > 0, exact at powers of two; -inf at 0."""
    e, f = _split_log(x)
    return tl.where(x == 0.0, float("-inf"), e + _log1p_poly(f) * LOG2E)


@triton.jit
def sigmoid(x):
    t = exp(-tl.abs(x))
    r = recip(1.0 + t)
    return tl.where(x < 0.0, t * r, r)


@triton.jit
def _with_sign_of(magnitude, x):
    return from_bits(bits(magnitude) | (bits(x) & -2147483648))


@triton.jit
def tanh(x):
    z = tl.minimum(tl.maximum(x, -0.625), 0.625)
    z2 = z * z
    small = z + (z * z2) * horner(z2, TANH_POLY)
    t = exp(-2.0 * tl.abs(x))
    large = _with_sign_of((1.0 - t) * recip(1.0 + t), x)
    return tl.where(tl.abs(x) < 0.625, small, large)


@triton.jit
def _erfc_tail(magnitude):
    z = tl.minimum(magnitude, 5.5)
    return tl.where(magnitude < 5.5, exp(-(z * z) - horner(z, ERFC_POLY)), 0.0)


@triton.jit
def _erf_centre(x):
    z = tl.minimum(tl.maximum(x, -1.0), 1.0)
    return z * horner(z * z, ERF_POLY)


@triton.jit
def erf(x):
    outer = _with_sign_of(1.0 - _erfc_tail(tl.abs(x)), x)
    result = tl.where(tl.abs(x) <= 1.0, _erf_centre(x), outer)
    return tl.where(x != x, x, result)


@triton.jit
def erfc(x):
    tail = _erfc_tail(tl.abs(x))
    outer = tl.where(x < 0.0, 2.0 - tail, tail)
    result = tl.where(tl.abs(x) <= 1.0, 1.0 - _erf_centre(x), outer)
    return tl.where(x != x, x, result)


@triton.jit
def softplus(x):
    """log(1 + e^x) as max(x, 0) + log1p(e^-|x|)."""
    t = exp(-tl.abs(x))
    near_two = t > 0.41421356
    log1p = _log1p_poly(tl.where(near_two, 0.5 * t - 0.5, t))
    log1p = tl.where(near_two, LN2_HIGH + (LN2_LOW + log1p), log1p)
    return tl.maximum(x, 0.0) + log1p


@triton.jit
def soft_capped(s, cap, inv_cap):
    """cap * tanh(settle(settle(s) * recip(cap))); the host gives both, inv_cap by the canonical recip."""
    return cap * tanh(settle(settle(s) * inv_cap))
