"""Q8_0: 32 elements in 34 bytes, codes of 8 bits around zero.

byte 0-1    float16 d
byte 2-33   int8 q[k] in byte 2 + k, for k in 0..31

An element is worth d * q.
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, Codes
from samebits.formats.bits import as_scale, byte_blocks, byte_rows, f16_bytes, read_f16, value_blocks
from samebits.formats.scaling import HALF, ONE, reciprocal, values


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """d = max|x| / 127, q = x * (1 / d) rounded half away from zero: gguf-py's bytes.

    Codes are taken before d is rounded to float16.
    """
    block = value_blocks(x, Q8_0)
    d = np.abs(block).max(axis=-1) / np.float32(127)
    stored_d = as_scale(d, Q8_0)
    ratio = block * reciprocal(d)[..., None]
    whole = np.abs(ratio).astype(np.int32)
    magnitude = whole + (np.abs(ratio) - whole.astype(np.float32) >= HALF)
    q = np.where(ratio < 0, -magnitude, magnitude).astype(np.int8)
    return byte_rows(f16_bytes(stored_d), q.view(np.uint8)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q8_0)
    return Codes(q=block[..., 2:].astype(np.int8), d=read_f16(block, 0))


Q8_0 = BlockFormat("q8_0", block_len=32, block_bytes=34, encode=encode, decode=decode, codes=codes)
FORMATS.add(Q8_0.name, Q8_0)
