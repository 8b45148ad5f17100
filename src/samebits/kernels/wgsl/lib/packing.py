"""What `prepack` gives: a weight cut into chunks of rows that a texture holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK_BYTES = 128 << 20  # of one texture, so that a large weight goes to the device in pieces


@dataclass(frozen=True)
class PackedWeight:
    """A weight [N, K] on the host, as shaders read it.

    chunks  (first row, number of rows, uint32 [height, width, 4]) one after another; no axis is beyond 8192
    scale   of the whole tensor, where its format has one
    """

    format: str
    shape: tuple[int, ...]
    chunks: tuple[tuple[int, int, np.ndarray], ...]
    scale: float = 1.0
