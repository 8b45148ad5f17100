"""Q3_K: 256 elements in 110 bytes: 16 sub-blocks of 16 with codes of 3 bits around zero.

byte 0-31      byte k: bit 2 of q[32 b + k] in bit b, b in 0..7, k in 0..31
byte 32-95     byte 32 + 32 h + k: bits 0-1 of q[128 h + 32 r + k] in bits 2r and 2r + 1, h in 0..1, r in 0..3
byte 96-103    byte 96 + i: bits 0-3 of scale[i] in bits 0-3, of scale[8 + i] in bits 4-7, i in 0..7
byte 104-107   byte 104 + i: bits 4-5 of scale[4 r + i] in bits 2r and 2r + 1, i in 0..3, r in 0..3
byte 108-109   float16 d

Element i is worth (d * (scale[i / 16] - 32)) * (q[i] - 4).
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import BLOCK, FORMATS, BlockFormat, Codes
from samebits.formats.bits import (
    byte_blocks,
    byte_rows,
    f16_bytes,
    merge,
    pack_fields,
    pack_nibbles,
    read_f16,
    split_fields,
    split_last,
    split_nibbles,
    value_blocks,
)
from samebits.formats.q2_k import pack_pairs, split_pairs
from samebits.formats.scaling import ONE, nearest_codes, values
from samebits.formats.superblock import NUM_SUB_BLOCKS as NUM_BLOCKS
from samebits.formats.superblock import half_scales, signed_scales

HALF_RANGE = 4
HALF_SCALE = 32


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of superblock.signed_scales; q - 4 = rint(x / (d * scale)), half to even, saturated.

    Ours, not GGML's search for the least error.
    """
    block = split_last(value_blocks(x, Q3_K), 16, 16)
    d, centered, ratio = signed_scales(block, -HALF_RANGE, HALF_SCALE, Q3_K)
    scales = (centered + HALF_SCALE).astype(np.uint8)
    elements = merge(nearest_codes(ratio, -HALF_RANGE, HALF_RANGE - 1) + HALF_RANGE, -2).astype(np.uint8)
    q = split_last(elements, NUM_BLOCKS, BLOCK)
    low_scales = pack_nibbles(scales & np.uint8(15))
    high_scales = pack_fields(split_last(scales >> np.uint8(4), 4, 4), 2)
    pairs = pack_pairs(q & np.uint8(3))
    return byte_rows(pack_fields(q >> np.uint8(2), 1), pairs, low_scales, high_scales, f16_bytes(d)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q3_K)
    q = split_pairs(block[..., 32:96]) | (split_fields(block[..., :32], 1) << np.uint8(2))
    high_scales = merge(split_fields(block[..., 104:108], 2), -2)
    scales = split_nibbles(block[..., 96:104]) | (high_scales << np.uint8(4))
    return Codes(
        q=merge(q.astype(np.int8) - np.int8(HALF_RANGE), -3),
        d=np.repeat(read_f16(block, 108), NUM_BLOCKS, axis=-1),
        sub=half_scales(scales.astype(np.int8) - np.int8(HALF_SCALE)),
    )


Q3_K = BlockFormat("q3_k", block_len=256, block_bytes=110, encode=encode, decode=decode, codes=codes, f16_at=(108,))
FORMATS.add(Q3_K.name, Q3_K)
