"""Rotary frequencies and their sines, made on the host once and uploaded as tables.

Frequencies are correctly rounded float64 (decimal arithmetic). Sines and cosines use float64 + - * only,
so every host makes the same tables; a table's hash can be compared between machines.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

# pi/2 in three parts of 33 bits, so that n * part is exact for n < 2^20
PI_2_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21)
TWO_OVER_PI = 0.6366197723675814
ROUND_MAGIC = 6755399441055744.0  # 1.5 * 2^52
SIN_POLY = (
    *(-0.16666666666666666, 0.008333333333330924, -0.00019841269836722353),
    *(2.755731608379243e-06, -2.505112794014324e-08, 1.5917848297081515e-10),
)
COS_POLY = (
    *(0.041666666666666664, -0.0013888888888887382, 2.480158729874303e-05),
    *(-2.755731725999387e-07, 2.0876143825571818e-09, -1.1382456635615195e-11),
)
MAX_ANGLE = float(2**20)


def rotary_frequencies(theta: float, rotary_dim: int) -> np.ndarray:
    """theta^(-2i/rotary_dim) for i below rotary_dim/2: float64, each the nearest to the real number."""
    with localcontext() as context:
        context.prec = 40
        base = Decimal(theta)
        powers = (base ** (Decimal(-2 * i) / Decimal(rotary_dim)) for i in range(rotary_dim // 2))
        return np.array([float(p) for p in powers], np.float64)


def natural_log(x: float) -> float:
    """ln x of a number above 0: float64, the nearest to the real number."""
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(x).ln())


def sin_cos(angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sin, cos) as float32 of float64 angles with |angle| <= 2^20."""
    n = (angle * TWO_OVER_PI + ROUND_MAGIC) - ROUND_MAGIC
    r = angle
    for part in PI_2_PARTS:
        r = r - n * part
    r2 = r * r
    sine = r + (r * r2) * _horner(SIN_POLY, r2)
    cosine = (1.0 - 0.5 * r2) + (r2 * r2) * _horner(COS_POLY, r2)
    quadrant = n.astype(np.int64) & 3
    odd = (quadrant & 1) == 1
    s, c = np.where(odd, cosine, sine), np.where(odd, sine, cosine)
    s = np.where((quadrant & 2) == 2, -s, s)
    c = np.where((quadrant == 1) | (quadrant == 2), -c, c)
    return s.astype(np.float32), c.astype(np.float32)


def _horner(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    total = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total
