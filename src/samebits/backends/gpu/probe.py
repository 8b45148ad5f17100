"""What a GPU is, and whether it computes as the portable tier needs."""

from __future__ import annotations

import numpy as np
import torch

from samebits.core.errors import Unavailable
from samebits.core.tiers import Tier
from samebits.kernels.triton.probing import multiply_add


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


def refuted_tiers(device: torch.device) -> dict[Tier, str]:
    """Tiers that a small computation on the device disproves, with the reason."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(1024).astype(np.float32) for _ in range(3))
    c = -(a * b) + c * np.float32(1e-7)  # what is left is the rounding of the product, unless it was contracted
    a[:256] *= np.float32(2.0**-126)  # products and sums of denormals
    c[:256] *= np.float32(2.0**-126)
    products, sums = multiply_add(*(torch.from_numpy(x).to(device) for x in (a, b, c)))
    if not np.array_equal(products.cpu().numpy(), a * b):
        return {Tier.PORTABLE: "float32 products are not IEEE's: denormals are flushed"}
    if not np.array_equal(sums.cpu().numpy(), a * b + c):
        return {Tier.PORTABLE: "a product and a sum are contracted, or denormals flushed"}
    return {}
