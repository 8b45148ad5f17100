"""What a GPU is, and whether it computes as the portable tier needs."""

from __future__ import annotations

import numpy as np
import torch

from samebits.core.errors import Unavailable
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.probing import multiply_add

COUNT, FEW = 1024, 256
FLUSHES = "flushes subnormals"


def require_gpu(name: str) -> torch.device:
    """The first device that torch reaches under this name, "cuda" or "rocm"; Unavailable with the reason."""
    built_for = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "no GPU"
    if built_for != name:
        raise Unavailable(f"torch {torch.__version__} is built for {built_for}; `pip install samebits[{name}]`")
    try:
        torch.cuda.init()  # says why, where is_available() only says no
    except (RuntimeError, AssertionError) as error:
        raise Unavailable(f"no GPU can be used: {str(error).splitlines()[0]}") from None
    if torch.cuda.device_count() == 0:
        raise Unavailable("no GPU is visible to this process")
    return torch.device("cuda", 0)


def probed(device: torch.device) -> tuple[tuple[str, ...], dict[Tier, str]]:
    """(features, tiers that are disproved with the reason) of a small computation on the device."""
    given = operands()
    products, sums = multiply_add(*(torch.from_numpy(x).to(device) for x in given))
    return judged(given, products.cpu().numpy(), sums.cpu().numpy())


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
