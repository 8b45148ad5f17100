"""Q5_1: 32 elements in 24 bytes, codes of 5 bits above a minimum.

byte 0-1    float16 d
byte 2-3    float16 m
byte 4-7    bit 4 of q[k] in bit k % 8 of byte 4 + k / 8, for k in 0..31
byte 8-23   byte 8 + j: bits 0-3 of q[j] in bits 0-3, of q[16 + j] in bits 4-7, for j in 0..15

An element is worth (d * q) + m.
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, Codes
from samebits.formats.bits import (
    byte_blocks,
    byte_rows,
    f16_bytes,
    pack_five_bits,
    read_f16,
    split_five_bits,
    value_blocks,
)
from samebits.formats.scaling import ONE, offset_codes, values


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of scaling.offset_codes: gguf-py's bytes, but a minimum of -0 is stored as +0."""
    d, m, q = offset_codes(value_blocks(x, Q5_1), 31, Q5_1)
    return byte_rows(f16_bytes(d), f16_bytes(m), pack_five_bits(q)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q5_1)
    q = split_five_bits(block[..., 4:]).astype(np.int8)
    return Codes(q=q, d=read_f16(block, 0), m=read_f16(block, 2))


Q5_1 = BlockFormat("q5_1", block_len=32, block_bytes=24, encode=encode, decode=decode, codes=codes, f16_at=(0, 2))
FORMATS.add(Q5_1.name, Q5_1)
