"""The plain formats: a numpy dtype each, in blocks of one element."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from samebits.core.format import FORMATS, Format

DTYPES: dict[str, type] = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "u8": np.uint8,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "bool": np.bool_,
}

for name, scalar in DTYPES.items():
    dtype = np.dtype(scalar)
    FORMATS.add(name, Format(name, block_len=1, block_bytes=dtype.itemsize, dtype=dtype))
