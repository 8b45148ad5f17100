"""How a block's codes are chosen, and what they are worth.

All floats are float32 and every operation rounds once, in the order written. The smallest and largest
element of a block come from np.min and np.max, which may return either zero of a block that holds
both: `+ 0` makes it +0, so the bits do not depend on how numpy walks the block.
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import BLOCK, Codes, Format
from samebits.formats.bits import as_scale, merge, split_last

ONE = np.float32(1)
ZERO = np.float32(0)
HALF = np.float32(0.5)


def reciprocal(d: np.ndarray) -> np.ndarray:
    """1 / d, and 0 where d is 0 or 1 / d overflows: float16 holds such a d as 0 anyway."""
    with np.errstate(divide="ignore", over="ignore"):
        r = ONE / d
    return np.where(np.isfinite(r), r, ZERO)


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, and 0 where b is 0."""
    return np.where(b == 0, ZERO, a / np.where(b == 0, ONE, b))


def extreme(x: np.ndarray) -> np.ndarray:
    """The element of largest magnitude along the last axis, the first of equals."""
    at = np.abs(x).argmax(axis=-1, keepdims=True)
    return np.take_along_axis(x, at, axis=-1)[..., 0]


def signed_codes(x: np.ndarray, half: int, fmt: Format) -> tuple[np.ndarray, np.ndarray]:
    """Scale [...] and codes uint8 0..2 half - 1 [..., block_len] of the formats worth d * (q - half).

    d = extreme / -half, q = trunc((x * (1 / d)) + (half + 0.5)): the extreme gets code 0, a tie takes
    the larger code, and a value opposite to the extreme saturates at 2 half - 1. The scale returned is d
    rounded to float16; the codes are taken before. Zeros get d = -0, as in gguf-py.
    """
    d = extreme(x) / np.float32(-half)
    stored_d = as_scale(d, fmt)
    q = (x * reciprocal(d)[..., None] + np.float32(half + 0.5)).astype(np.int32)
    return stored_d, np.minimum(q, 2 * half - 1).astype(np.uint8)


@np.errstate(over="ignore", invalid="ignore")  # as_scale refuses what overflows
def offset_codes(x: np.ndarray, top: int, fmt: Format) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale [...], minimum [...] and codes uint8 0..top [..., block_len] of the formats worth (d * q) + m.

    d = (max - min) / top, q = trunc(((x - min) * (1 / d)) + 0.5): a tie takes the larger code. Scale and
    minimum returned are rounded to float16; the codes are taken before.
    """
    m = x.min(axis=-1) + ZERO
    d = ((x.max(axis=-1) + ZERO) - m) / np.float32(top)
    stored_d, stored_m = as_scale(d, fmt), as_scale(m, fmt)
    q = ((x - m[..., None]) * reciprocal(d)[..., None] + HALF).astype(np.int32)
    return stored_d, stored_m, np.minimum(q, top).astype(np.uint8)


def nearest_codes(ratio: np.ndarray, low: int, high: int) -> np.ndarray:
    """int32 codes: float32 ratios rounded half to even and saturated to low..high."""
    saturated: np.ndarray = np.clip(np.rint(ratio), np.float32(low), np.float32(high))
    return saturated.astype(np.int32)


@np.errstate(invalid="ignore")  # Inf * 0 is NaN, as in any product
def values(c: Codes) -> np.ndarray:
    """float32 [..., nb * 32]: ((d * sub) * q) + (m * msub), without the factors and terms that are None.

    The products are exact for the GGML formats, so only the sum rounds.
    """
    d = c.d[..., None] if c.sub is None else c.d[..., None] * c.sub
    v = _parts(c.q, d) * d[..., None]
    if c.m is not None:
        m = c.m[..., None] if c.msub is None else c.m[..., None] * c.msub
        v = _parts(merge(v, -2), m) + m[..., None]
    return merge(merge(v, -2), -2)


def _parts(x: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[..., nb, 32] as float32 [..., nb, h, 32 / h], to meet scales [..., nb, h]."""
    num_parts = scales.shape[-1]
    return split_last(x, num_parts, BLOCK // num_parts).astype(np.float32)
