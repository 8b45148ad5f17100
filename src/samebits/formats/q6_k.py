"""Q6_K: 256 elements in 210 bytes: 16 sub-blocks of 16 with codes of 6 bits around zero.

byte 0-127     byte 64 h + j: bits 0-3 of q[128 h + j] in bits 0-3, of q[128 h + 64 + j] in bits 4-7,
               h in 0..1, j in 0..63
byte 128-191   byte 128 + 32 h + k: bits 4-5 of q[128 h + 32 r + k] in bits 2r and 2r + 1,
               r in 0..3, k in 0..31
byte 192-207   int8 scale[s], s in 0..15
byte 208-209   float16 d

Element i is worth (d * scale[i / 16]) * (q[i] - 32).
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
from samebits.formats.scaling import ONE, nearest_codes, values
from samebits.formats.superblock import half_scales, signed_scales

NUM_BLOCKS = 8  # of 32 elements
NUM_SUB_BLOCKS = 16
HALF_RANGE = 32


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of superblock.signed_scales; q - 32 = rint(x / (d * scale)), half to even, saturated.

    Ours, not GGML's search for the least error.
    """
    block = split_last(value_blocks(x, Q6_K), NUM_SUB_BLOCKS, 16)
    d, scales, ratio = signed_scales(block, -HALF_RANGE, 128, Q6_K)
    centered = nearest_codes(ratio, -HALF_RANGE, HALF_RANGE - 1)
    q = merge(centered + HALF_RANGE, -2).astype(np.uint8)
    low = merge(pack_nibbles(split_last(q & np.uint8(15), 2, 128)), -2)
    high = merge(pack_fields(split_last(q >> np.uint8(4), 2, 4, BLOCK), 2), -2)
    return byte_rows(low, high, scales.astype(np.uint8), f16_bytes(d)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q6_K)
    low = merge(split_nibbles(split_last(block[..., :128], 2, 64)), -2)
    high = merge(merge(split_fields(split_last(block[..., 128:192], 2, BLOCK), 2), -3), -2)
    q = (low | (high << np.uint8(4))).astype(np.int8) - np.int8(HALF_RANGE)
    return Codes(
        q=merge(split_last(q, NUM_BLOCKS, BLOCK), -3),
        d=np.repeat(read_f16(block, 208), NUM_BLOCKS, axis=-1),
        sub=half_scales(block[..., 192:208].astype(np.int8)),
    )


Q6_K = BlockFormat("q6_k", block_len=256, block_bytes=210, encode=encode, decode=decode, codes=codes, f16_at=(208,))
FORMATS.add(Q6_K.name, Q6_K)
