"""Device memory that outlives a launch: counters that kernels leave at zero."""

from __future__ import annotations

from functools import cache

import torch

MAX_COUNTERS = 1 << 20


@cache
def counters(device: torch.device) -> torch.Tensor:
    """int32 [MAX_COUNTERS] of zeros. A kernel that counts arrivals sets what it used back to zero before it ends.

    One buffer serves all kernels, since launches on a stream follow each other.
    """
    return torch.zeros(MAX_COUNTERS, dtype=torch.int32, device=device)
