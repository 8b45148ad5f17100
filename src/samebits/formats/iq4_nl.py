"""IQ4_NL: 32 elements in 18 bytes, codes of 4 bits that stand for sixteen levels, closer together near zero.

byte 0-1    float16 d
byte 2-17   byte 2 + j: c[j] in bits 0-3, c[16 + j] in bits 4-7, for j in 0..15

An element is worth d * LEVELS[c].
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, Codes
from samebits.formats.bits import (
    as_scale,
    byte_blocks,
    byte_rows,
    f16_bytes,
    pack_nibbles,
    read_f16,
    split_nibbles,
    value_blocks,
)
from samebits.formats.scaling import ONE, extreme, quotient, values

LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
LOWEST = int(LEVELS[0])
_TIES = (LEVELS[:-1].astype(np.float32) + LEVELS[1:]) / np.float32(2)  # exact


def nearest_levels(ratio: np.ndarray) -> np.ndarray:
    """uint8 codes 0..15 of the levels nearest to float32 ratios; a tie takes the lower one."""
    return np.searchsorted(_TIES, ratio, side="left").astype(np.uint8)


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """d = extreme / -127 in float16, so that the extreme gets code 0; c the level nearest to x / d.

    Ours, not GGML's search for the least error.
    """
    block = value_blocks(x, IQ4_NL)
    d = as_scale(extreme(block) / np.float32(LOWEST), IQ4_NL)
    return byte_rows(f16_bytes(d), pack_nibbles(nearest_levels(quotient(block, d[..., None])))), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, IQ4_NL)
    return Codes(q=LEVELS[split_nibbles(block[..., 2:])], d=read_f16(block, 0))


IQ4_NL = BlockFormat("iq4_nl", block_len=32, block_bytes=18, encode=encode, decode=decode, codes=codes)
FORMATS.add(IQ4_NL.name, IQ4_NL)
