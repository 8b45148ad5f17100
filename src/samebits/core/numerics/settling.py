"""Settled numbers: +0, or of magnitude 2^-50 and more. Every float that an op reads or gives is one.

Then no product of two of them, and no sum or difference of such products, is a subnormal, and no result holds a -0:
devices that flush subnormals, or do not tell the zeros apart, give the same bits. Why 2^-50: docs/numerics.md.
"""

from __future__ import annotations

import numpy as np

SMALLEST = np.float32(2.0**-50)
CHUNK = 1 << 16  # elements looked at together, so that a weight of gigabytes passes through the cache


def settle(x: np.ndarray) -> np.ndarray:
    """float32 x with +0 in the place of -0 and of every magnitude below 2^-50; NaN and Inf stay."""
    return np.where(np.abs(x) < SMALLEST, np.float32(0), x)


def unsettled(x: np.ndarray) -> np.ndarray:
    """bool: which elements of a float32, float16 or bfloat16 array are -0 or of a magnitude below 2^-50.

    By their bits, so that a host that flushes subnormals sees them too. float16 has no magnitude below 2^-24.
    """
    if x.dtype == np.float16:
        return x.view(np.uint16) == 0x8000
    pattern: np.ndarray = x.view(np.uint32 if x.dtype == np.float32 else np.uint16)
    smallest: np.ndarray = np.array(SMALLEST).astype(x.dtype).view(pattern.dtype)
    return (np.left_shift(pattern, 1) < np.left_shift(smallest, 1)) & (pattern != 0)  # without the sign


def settled(x: np.ndarray, in_place: bool = False) -> np.ndarray:
    """A float array of any format with +0 for what is not settled: x itself where all is, or where it may change."""
    if not any(unsettled(part).any() for part in parts(x)):
        return x
    result = x if in_place else x.copy()
    for part in parts(result):
        part[unsettled(part)] = 0
    return result


def parts(x: np.ndarray) -> list[np.ndarray]:
    """Views that make up x, CHUNK elements each where it is contiguous."""
    if not x.flags.c_contiguous:
        return [x]
    flat = x.reshape(-1)
    return [flat[start : start + CHUNK] for start in range(0, x.size, CHUNK)]
