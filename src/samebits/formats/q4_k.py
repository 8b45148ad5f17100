"""Q4_K: 256 elements in 144 bytes: 8 sub-blocks of 32 with codes of 4 bits above a minimum.

byte 0-15     header of superblock.py: float16 d, float16 dmin, 6-bit scale[s] and min[s], s in 0..7
byte 16-143   byte 16 + 32 g + k: q[2g][k] in bits 0-3, q[2g + 1][k] in bits 4-7, g in 0..3, k in 0..31

Element k of sub-block s is worth ((d * scale[s]) * q[s][k]) - (dmin * min[s]).
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import BLOCK, FORMATS, BlockFormat, Codes
from samebits.formats.bits import byte_blocks, byte_rows, merge, pack_nibbles, split_last, split_nibbles
from samebits.formats.scaling import ONE, values
from samebits.formats.superblock import HEADER_BYTES, NUM_SUB_BLOCKS, affine_codes, header_and_codes


def split_codes(packed: np.ndarray) -> np.ndarray:
    """uint8 [..., 128] as nibbles [..., 8, 32]; Q5_K stores the low bits of its codes the same way."""
    groups = split_last(packed, NUM_SUB_BLOCKS // 2, BLOCK)
    return split_last(merge(split_nibbles(groups), -2), NUM_SUB_BLOCKS, BLOCK)


def pack_codes(q: np.ndarray) -> np.ndarray:
    """Undoes split_codes."""
    groups = split_last(merge(q, -2), NUM_SUB_BLOCKS // 2, 2 * BLOCK)
    return merge(pack_nibbles(groups), -2)


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of superblock.header_and_codes; ours, not GGML's search for the least error."""
    header, q = header_and_codes(x, 15, Q4_K)
    return byte_rows(header, pack_codes(q)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, Q4_K)
    return affine_codes(block[..., :HEADER_BYTES], split_codes(block[..., HEADER_BYTES:]))


Q4_K = BlockFormat("q4_k", block_len=256, block_bytes=144, encode=encode, decode=decode, codes=codes, f16_at=(0, 2))
FORMATS.add(Q4_K.name, Q4_K)
