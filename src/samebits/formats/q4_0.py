"""Q4_0: 32 elements in 18 bytes, codes of 4 bits around zero.

byte 0-1    float16 d
byte 2-17   byte 2 + j: q[j] in bits 0-3, q[16 + j] in bits 4-7, for j in 0..15

An element is worth d * (q - 8).
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, Codes
from samebits.formats.bits import (
    byte_blocks,
    byte_rows,
    f16_bytes,
    pack_nibbles,
    read_f16,
    split_nibbles,
    value_blocks,
)
from samebits.formats.scaling import ONE, signed_codes, values


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of scaling.signed_codes: gguf-py's bytes wherever 1 / d does not overflow."""
    d, q = signed_codes(value_blocks(x, Q4_0), 8, Q4_0)
    return byte_rows(f16_bytes(d), pack_nibbles(q)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q4_0)
    return Codes(q=split_nibbles(block[..., 2:]).astype(np.int8) - np.int8(8), d=read_f16(block, 0))


Q4_0 = BlockFormat("q4_0", block_len=32, block_bytes=18, encode=encode, decode=decode, codes=codes)
FORMATS.add(Q4_0.name, Q4_0)
