"""Moves between float32 and the 16-bit types, and the operands whose products are exact.

float16 x float16 always has an exact float32 product. bfloat16 x bfloat16 has one while no product overflows, so an
operand of a product is of magnitude 2^63 at the most.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from samebits.core.errors import BadInput
from samebits.core.numerics.settling import parts

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)

LARGEST_BF16_OPERAND = np.float32(2.0**63)


def widen(x: np.ndarray) -> np.ndarray:
    """Exact float32 values of a float array; a float32 array is returned as it is."""
    return x if x.dtype == F32 else x.astype(F32)


def rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float32 to `dtype`, to nearest even, overflow to infinity; a zero keeps its sign, as other programs write it."""
    # overflow to infinity is the definition, a NaN stays one, and float16 has subnormals of its own
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return x if x.dtype == dtype else x.astype(dtype)


def narrow(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Settled float32 to settled `dtype`, to nearest even: what float16 rounds to zero is +0."""
    y = rounded(x, dtype)
    return np.where(y == 0, F16.type(0), y) if dtype == F16 else y


def are_operands(x: np.ndarray) -> bool:
    """Whether products allow all elements of a float32, float16 or bfloat16 array: finite, up to 2^63 in bfloat16."""
    word = np.uint32 if x.dtype == F32 else np.uint16
    sign, largest = (0x80000000, 0x7F7FFFFF) if x.dtype == F32 else (0x8000, 0x7BFF if x.dtype == F16 else 0x5F00)
    return all(np.bitwise_and(part.view(word), sign - 1).max(initial=0) <= largest for part in parts(x))


def as_operand(x: np.ndarray, dtype: np.dtype, where: str, argument: str) -> np.ndarray:
    """Settled float32 `x` rounded to `dtype` for use in a product; returns the rounded values widened to float32.

    BadInput when a value is not finite or beyond the range (float16: 65504; bfloat16: 2^63). float32 operands are only
    required to be finite.
    """
    operand = widen(narrow(x, dtype))
    limit = LARGEST_BF16_OPERAND if dtype == BF16 else np.float32(np.inf)
    magnitude = np.abs(operand)
    if not (magnitude < np.inf).all() or (magnitude > limit).any():
        raise BadInput(where, argument, "NaN, Inf or a value beyond the type's range", f"finite {dtype} values")
    return operand
