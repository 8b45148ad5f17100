"""Weights as native kernels read them: 16 rows side by side, so that a vector register holds one k of all of them."""

from __future__ import annotations

from math import prod

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed, format_of
from samebits.kernels.cpp import native
from samebits.kernels.cpp.slabs import SLABS

# Native numbers of formats, in the order of runtime/tensor.h.
PLAIN_FORMATS = ("f32", "f16", "bf16", "i8", "u8", "i32", "u32", "bool")
BLOCK_FORMATS = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "nvfp4", "mxfp4"),
    *("q2_k", "q3_k", "iq4_nl", "iq4_xs"),
)
FORMAT_CODES = {name: code for code, name in enumerate((*PLAIN_FORMATS, *BLOCK_FORMATS))}


def rows16_bytes(format_name: str, shape: tuple[int, ...]) -> int:
    """Bytes of a weight [..., N, K] in groups of 16 rows."""
    *leading, num_rows, width = shape
    return int(native().rows16_bytes(FORMAT_CODES[format_name], prod(leading), num_rows, width))


def pack_rows(tensor: HostTensor) -> np.ndarray:
    """uint8 [bytes]: the weight [..., N, K] in groups of 16 rows (ops/weights.h).

    BadInput for a plain weight with a value that no product allows.
    """
    name = format_of(tensor).name
    *leading, num_rows, width = tensor.shape
    rows = np.ascontiguousarray(tensor.data if isinstance(tensor, Packed) else tensor).reshape(-1).view(np.uint8)
    packed = SLABS.take(rows16_bytes(name, tensor.shape))
    if not native().pack_rows(FORMAT_CODES[name], prod(leading), num_rows, width, rows, packed):
        raise BadInput("weight", "values", "NaN, Inf or a value beyond the type's range", f"finite {name} values")
    return packed
