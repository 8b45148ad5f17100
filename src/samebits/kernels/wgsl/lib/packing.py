"""What `prepack` gives: a weight cut into chunks of rows that a binding holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK_BYTES = 128 << 20  # of one storage binding, what every device grants


@dataclass(frozen=True)
class PackedWeight:
    """A weight [N, K] on the host, as shaders read it.

    chunks  (first row, number of rows, uint32 words) one after another; each fits into one binding
    scale   of the whole tensor, where its format has one
    """

    format: str
    shape: tuple[int, ...]
    chunks: tuple[tuple[int, int, np.ndarray], ...]
    scale: float = 1.0
