"""Q5_0: 32 elements in 22 bytes, codes of 5 bits around zero.

byte 0-1    float16 d
byte 2-5    bit 4 of q[k] in bit k % 8 of byte 2 + k / 8, for k in 0..31
byte 6-21   byte 6 + j: bits 0-3 of q[j] in bits 0-3, of q[16 + j] in bits 4-7, for j in 0..15

An element is worth d * (q - 16).
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
from samebits.formats.scaling import ONE, signed_codes, values


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of scaling.signed_codes: gguf-py's bytes wherever 1 / d does not overflow."""
    d, q = signed_codes(value_blocks(x, Q5_0), 16, Q5_0)
    return byte_rows(f16_bytes(d), pack_five_bits(q)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q5_0)
    return Codes(q=split_five_bits(block[..., 2:]).astype(np.int8) - np.int8(16), d=read_f16(block, 0))


Q5_0 = BlockFormat("q5_0", block_len=32, block_bytes=22, encode=encode, decode=decode, codes=codes)
FORMATS.add(Q5_0.name, Q5_0)
