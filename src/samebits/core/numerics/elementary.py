"""Elementary functions as short sequences of allowed float32 operations.

Allowed: + - * (round to nearest even, unfused), comparisons, int32 arithmetic, bit casts. Arguments are settled, and
a square that would fall below 2^-50 is +0 where a further product would make it a subnormal: it is too small to change
the sum it goes into, so a kernel may leave that step out. So any device that has IEEE float32 gives these bits,
whether it flushes subnormals or not. Polynomials are Horner chains, highest power first; every parenthesis is part of
the definition. Domains and measured errors: docs/numerics.md.
Every function takes and returns float32 arrays and keeps NaN.
"""

from __future__ import annotations

import numpy as np

from samebits.core.numerics.settling import settle

F = np.float32

LOG2E = F(1.44269504)
LN2_HIGH = F(0.693359375)  # 10 bits, so n * LN2_HIGH is exact for |n| < 2^14
LN2_LOW = F(-2.12194440e-4)
ROUND_MAGIC = F(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, half to even
ROUND_MAGIC_BITS = np.int32(0x4B400000)
SQRT_HALF_BITS = np.int32(0x3F3504F3)

EXP_LOWEST = F(-34.5)  # below it exp is +0, so every result is settled
EXP_HIGHEST = F(88.0)  # above it exp is +inf

EXP_POLY = (0.5, 0.166665181517601, 0.04166620597243309, 0.008368954062461853, 0.0013950602151453495)
LOG_POLY = (
    *(0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.16623356938362122),
    *(0.14201757311820984, -0.13160184025764465, 0.127615824341774, -0.07634497433900833),
)
TANH_POLY = (
    *(-0.3333328366279602, 0.13331490755081177, -0.05374349653720856),
    *(0.020650584250688553, -0.005717042367905378),
)
ERF_POLY = (
    *(1.1283791065216064, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923),
    *(0.005189535673707724, -0.0008020842215046287, 7.889122935011983e-05),
)
ERFC_POLY = (
    *(-0.00019510684069246054, 1.1296759843826294, -0.367125004529953, 0.108995221555233),
    *(-0.025748612359166145, 0.004504317417740822, -0.0005389406578615308),
    *(3.889390063704923e-05, -1.265466607947019e-06),
)


def bits(x: np.ndarray) -> np.ndarray:
    """The int32 pattern of a float32 array."""
    return np.asarray(x, np.float32).view(np.int32)


def from_bits(pattern: np.ndarray) -> np.ndarray:
    """The float32 array of an int32 pattern."""
    return np.asarray(pattern, np.int32).view(np.float32)


def horner(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """c0 + x*(c1 + x*(c2 + ...)), each step one multiplication and one addition."""
    total = np.full_like(x, F(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        total *= x
        total += F(c)
    return total


def round_to_int(x: np.ndarray) -> np.ndarray:
    """The nearest integer, half to even, as float32; for |x| < 2^22."""
    return (x + ROUND_MAGIC) - ROUND_MAGIC


def exp(x: np.ndarray) -> np.ndarray:
    """e^x: +0 below -34.5, +inf above 88. An argument below 2^-50 counts as 0, which gives the same bits."""
    clamped = np.minimum(np.maximum(settle(x), EXP_LOWEST), EXP_HIGHEST)
    shifted = clamped * LOG2E + ROUND_MAGIC
    n = shifted - ROUND_MAGIC
    r = (clamped - n * LN2_HIGH) - n * LN2_LOW
    mantissa = F(1) + (r + (r * r) * horner(EXP_POLY, r))
    exponent = bits(shifted) - ROUND_MAGIC_BITS
    result = from_bits(bits(mantissa) + (exponent << 23))
    for is_special, value in ((x < EXP_LOWEST, F(0)), (x > EXP_HIGHEST, F(np.inf)), (x != x, x)):
        if is_special.any():  # looking costs less than choosing
            result = np.where(is_special, value, result)
    return result


def recip(x: np.ndarray) -> np.ndarray:
    """1/x for 2^-100 <= x <= 2^100: an integer guess and four Newton steps; at most 1 for x >= 1."""
    y = from_bits(np.int32(0x7EF311C7) - bits(x))
    for _ in range(4):
        y = y + y * (F(1) - x * y)
    return y


def rsqrt(x: np.ndarray) -> np.ndarray:
    """1/sqrt(x) for x >= 2^-100: an integer guess and three Newton steps; finite at 0."""
    y = from_bits(np.int32(0x5F3759DF) - (bits(x) >> 1))
    for _ in range(3):
        y = y + (F(0.5) * y) * (F(1) - (x * y) * y)
    return y


def _log1p_poly(f: np.ndarray) -> np.ndarray:
    """log(1 + f) for sqrt(1/2) - 1 <= f <= sqrt(2) - 1."""
    f2 = settle(f * f)
    return f - (F(0.5) * f2 - (f2 * f) * horner(LOG_POLY, f))


def _split_log(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x = 2^e * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); (e, f) as float32."""
    exponent = (bits(x) - SQRT_HALF_BITS) >> 23
    f = from_bits(bits(x) - (exponent << 23)) - F(1)
    return exponent.astype(np.float32), f


def log(x: np.ndarray) -> np.ndarray:
    """ln x for normal x > 0; -inf at 0."""
    e, f = _split_log(x)
    result = e * LN2_HIGH + (e * LN2_LOW + _log1p_poly(f))
    return np.where(x == F(0), F(-np.inf), result)


def log2(x: np.ndarray) -> np.ndarray:
    """log2 x for normal x > 0, exact at powers of two; -inf at 0."""
    e, f = _split_log(x)
    result = e + _log1p_poly(f) * LOG2E
    return np.where(x == F(0), F(-np.inf), result)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1/(1 + e^-x)."""
    t = exp(-np.abs(x))
    r = recip(F(1) + t)
    return np.where(x < F(0), t * r, r)


def tanh(x: np.ndarray) -> np.ndarray:
    """The hyperbolic tangent."""
    z = np.minimum(np.maximum(x, F(-0.625)), F(0.625))
    z2 = settle(z * z)
    small = z + (z * z2) * horner(TANH_POLY, z2)
    t = exp(F(-2) * np.abs(x))
    large = np.copysign((F(1) - t) * recip(F(1) + t), x)
    return np.where(np.abs(x) < F(0.625), small, large)


def _erfc_tail(magnitude: np.ndarray) -> np.ndarray:
    """erfc of 1 < magnitude; +0 from 5.5 on."""
    z = np.minimum(magnitude, F(5.5))
    tail = exp(-(z * z) - horner(ERFC_POLY, z))
    return np.where(magnitude < F(5.5), tail, F(0))


def _erf_centre(x: np.ndarray) -> np.ndarray:
    """erf of |x| <= 1."""
    z = np.minimum(np.maximum(x, F(-1)), F(1))
    return z * horner(ERF_POLY, z * z)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    magnitude = np.abs(x)
    outer = np.copysign(F(1) - _erfc_tail(magnitude), x)
    result = np.where(magnitude <= F(1), _erf_centre(x), outer)
    return np.where(x != x, x, result)


def erfc(x: np.ndarray) -> np.ndarray:
    """1 - erf(x), accurate in absolute terms of its own size up to x = 5.5, +0 beyond."""
    tail = _erfc_tail(np.abs(x))
    outer = np.where(x < F(0), F(2) - tail, tail)
    result = np.where(np.abs(x) <= F(1), F(1) - _erf_centre(x), outer)
    return np.where(x != x, x, result)


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + e^x) as max(x, 0) + log1p(e^-|x|)."""
    t = exp(-np.abs(x))
    near_two = t > F(0.41421356)  # 1 + t beyond sqrt(2): halve it, exactly
    f = np.where(near_two, F(0.5) * t - F(0.5), t)
    log1p = _log1p_poly(f)
    log1p = np.where(near_two, LN2_HIGH + (LN2_LOW + log1p), log1p)
    return np.maximum(x, F(0)) + log1p
