"""Q2_K: 256 elements in 84 bytes: 16 sub-blocks of 16 with codes of 2 bits above a minimum.

byte 0-15    byte s: scale[s] in bits 0-3, min[s] in bits 4-7, s in 0..15
byte 16-79   byte 16 + 32 h + k: q[128 h + 32 r + k] in bits 2r and 2r + 1, h in 0..1, r in 0..3, k in 0..31
byte 80-81   float16 d
byte 82-83   float16 dmin

Element i is worth ((d * scale[i / 16]) * q[i]) - (dmin * min[i / 16]).
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
    read_f16,
    split_fields,
    split_last,
    value_blocks,
)
from samebits.formats.scaling import ONE, values
from samebits.formats.superblock import NUM_SUB_BLOCKS as NUM_BLOCKS
from samebits.formats.superblock import half_scales, offset_sub_blocks


def split_pairs(packed: np.ndarray) -> np.ndarray:
    """uint8 [..., 64] as codes 0..3 [..., 8, 32]; Q3_K stores the low bits of its codes the same way."""
    return merge(split_fields(split_last(packed, 2, BLOCK), 2), -3)


def pack_pairs(q: np.ndarray) -> np.ndarray:
    """Undoes split_pairs."""
    return merge(pack_fields(split_last(merge(q, -2), 2, 4, BLOCK), 2), -2)


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of superblock.offset_sub_blocks; ours, not GGML's search for the least error."""
    block = split_last(value_blocks(x, Q2_K), 16, 16)
    d, dmin, scales, mins, q = offset_sub_blocks(block, 3, 15, Q2_K)
    codes_of_blocks = split_last(merge(q, -2), NUM_BLOCKS, BLOCK)
    return byte_rows(scales | (mins << np.uint8(4)), pack_pairs(codes_of_blocks), f16_bytes(d), f16_bytes(dmin)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q2_K)
    return Codes(
        q=merge(split_pairs(block[..., 16:80]), -3).astype(np.int8),
        d=np.repeat(read_f16(block, 80), NUM_BLOCKS, axis=-1),
        sub=half_scales(block[..., :16] & np.uint8(15)),
        m=np.repeat(-read_f16(block, 82), NUM_BLOCKS, axis=-1),
        msub=half_scales(block[..., :16] >> np.uint8(4)),
    )


Q2_K = BlockFormat("q2_k", block_len=256, block_bytes=84, encode=encode, decode=decode, codes=codes, f16_at=(80, 82))
FORMATS.add(Q2_K.name, Q2_K)
