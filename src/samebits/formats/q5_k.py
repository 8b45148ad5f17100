"""Q5_K: 256 elements in 176 bytes: 8 sub-blocks of 32 with codes of 5 bits above a minimum.

byte 0-15     header of superblock.py: float16 d, float16 dmin, 6-bit scale[s] and min[s], s in 0..7
byte 16-47    byte 16 + k: bit 4 of q[s][k] in bit s, k in 0..31
byte 48-175   byte 48 + 32 g + k: bits 0-3 of q[2g][k] in bits 0-3, of q[2g + 1][k] in bits 4-7, g in 0..3

Element k of sub-block s is worth ((d * scale[s]) * q[s][k]) - (dmin * min[s]).
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import BLOCK, FORMATS, BlockFormat, Codes
from samebits.formats.bits import byte_blocks, byte_rows, pack_fields, split_fields
from samebits.formats.q4_k import pack_codes, split_codes
from samebits.formats.scaling import ONE, values
from samebits.formats.superblock import HEADER_BYTES, affine_codes, header_and_codes


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of superblock.header_and_codes; ours, not GGML's search for the least error."""
    header, q = header_and_codes(x, 31, Q5_K)
    fifth_bits = pack_fields(q >> np.uint8(4), 1)
    return byte_rows(header, fifth_bits, pack_codes(q & np.uint8(15))), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q5_K)
    header, packed_fifth_bits, nibbles = np.split(block, [HEADER_BYTES, HEADER_BYTES + BLOCK], axis=-1)
    q = split_codes(nibbles) | (split_fields(packed_fifth_bits, 1) << np.uint8(4))
    return affine_codes(header, q)


Q5_K = BlockFormat("q5_k", block_len=256, block_bytes=176, encode=encode, decode=decode, codes=codes, f16_at=(0, 2))
FORMATS.add(Q5_K.name, Q5_K)
