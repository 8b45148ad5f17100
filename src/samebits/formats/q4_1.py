"""Q4_1: 32 elements in 20 bytes, codes of 4 bits above a minimum.

byte 0-1    float16 d
byte 2-3    float16 m
byte 4-19   byte 4 + j: q[j] in bits 0-3, q[16 + j] in bits 4-7, for j in 0..15

An element is worth (d * q) + m.
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
from samebits.formats.scaling import ONE, offset_codes, values


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of scaling.offset_codes: gguf-py's bytes, but a minimum of -0 is stored as +0."""
    d, m, q = offset_codes(value_blocks(x, Q4_1), 15, Q4_1)
    return byte_rows(f16_bytes(d), f16_bytes(m), pack_nibbles(q)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q4_1)
    return Codes(q=split_nibbles(block[..., 4:]).astype(np.int8), d=read_f16(block, 0), m=read_f16(block, 2))


Q4_1 = BlockFormat("q4_1", block_len=32, block_bytes=20, encode=encode, decode=decode, codes=codes, f16_at=(0, 2))
FORMATS.add(Q4_1.name, Q4_1)
