"""Weights as native kernels read them: 16 rows side by side, so that a vector register holds one k of all of them."""

from __future__ import annotations

import numpy as np

from samebits.core.format import HostTensor, Packed, format_of
from samebits.kernels.cpp import native


def pack_rows(tensor: HostTensor) -> np.ndarray:
    """uint8 [bytes]: the weight [..., N, K] in groups of 16 rows (ops/pack.h). BadInput for values no product allows."""
    data = np.ascontiguousarray(tensor.data if isinstance(tensor, Packed) else tensor)
    *leading, num_rows, width = tensor.shape
    packed = np.empty(native().packed_bytes(format_of(tensor).name, [*leading, num_rows, width]), np.uint8)
    native().pack(format_of(tensor).name, data, packed)
    return packed
