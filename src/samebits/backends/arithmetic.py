"""What any device is asked about float32 products and sums before it is trusted with the portable tier."""

from __future__ import annotations

import numpy as np

from samebits.core.tiers import Tier

COUNT, FEW = 1024, 256
FLUSHES = "flushes subnormals"


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float32 (a, b, c) [COUNT]; the first FEW of a, and of a * b, are subnormal."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(COUNT).astype(np.float32) for _ in range(3))
    c = -(a * b) + c * np.float32(1e-7)  # what is left is the rounding of the product, unless it was contracted
    a[:FEW] *= np.float32(2.0**-130)
    return a, b, c


def judged(
    given: tuple[np.ndarray, np.ndarray, np.ndarray], products: np.ndarray, sums: np.ndarray
) -> tuple[tuple[str, ...], dict[Tier, str]]:
    """What a device's products a * b and sums a * b + c of `operands` say: (features, tiers disproved).

    No result of the portable tier depends on a subnormal, so flushing them disproves nothing.
    """
    a, b, c = given
    with np.errstate(under="ignore"):
        wanted = a * b
    features = () if np.array_equal(products[:FEW], wanted[:FEW]) else (FLUSHES,)
    if not np.array_equal(products[FEW:], wanted[FEW:]):
        return features, {Tier.PORTABLE: "float32 products are not IEEE's"}
    if not np.array_equal(sums[FEW:], wanted[FEW:] + c[FEW:]):
        return features, {Tier.PORTABLE: "a product and a sum are contracted"}
    return features, {}
