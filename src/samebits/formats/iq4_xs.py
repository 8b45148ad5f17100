"""IQ4_XS: 256 elements in 136 bytes: 8 sub-blocks of 32 with 6-bit scales and the sixteen levels of IQ4_NL.

byte 0-1     float16 d
byte 2-3     bits 4-5 of scale[s] in bits 2s and 2s + 1 of the 16-bit number, s in 0..7
byte 4-7     byte 4 + i: bits 0-3 of scale[2i] in bits 0-3, of scale[2i + 1] in bits 4-7
byte 8-135   byte 8 + 16 s + j: c[s][j] in bits 0-3, c[s][16 + j] in bits 4-7, for j in 0..15

Element k of sub-block s is worth (d * (scale[s] - 32)) * LEVELS[c[s][k]].
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
from samebits.formats.iq4_nl import LEVELS, LOWEST, nearest_levels
from samebits.formats.scaling import ONE, values
from samebits.formats.superblock import NUM_SUB_BLOCKS, signed_scales

HALF_SCALE = 32


def _in_order(fields: np.ndarray) -> np.ndarray:
    """[..., per byte, bytes] as [..., fields]: those of the first byte come first."""
    return merge(fields.swapaxes(-1, -2), -2)


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The rule of superblock.signed_scales, then the nearest levels; ours, not GGML's search for the least error."""
    block = split_last(value_blocks(x, IQ4_XS), NUM_SUB_BLOCKS, BLOCK)
    d, centered, ratio = signed_scales(block, LOWEST, HALF_SCALE, IQ4_XS)
    scales = (centered + HALF_SCALE).astype(np.uint8)
    high = pack_fields(split_last(scales >> np.uint8(4), 2, 4).swapaxes(-1, -2), 2)
    low = pack_fields(split_last(scales & np.uint8(15), 4, 2).swapaxes(-1, -2), 4)
    return byte_rows(f16_bytes(d), high, low, merge(pack_nibbles(nearest_levels(ratio)), -2)), ONE


def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    block = byte_blocks(data, IQ4_XS)
    high, low = _in_order(split_fields(block[..., 2:4], 2)), _in_order(split_fields(block[..., 4:8], 4))
    scales = (low | (high << np.uint8(4))).astype(np.int8) - np.int8(HALF_SCALE)
    return Codes(
        q=LEVELS[merge(split_nibbles(split_last(block[..., 8:], NUM_SUB_BLOCKS, 16)), -3)],
        d=np.repeat(read_f16(block, 0), NUM_SUB_BLOCKS, axis=-1),
        sub=merge(scales, -2).astype(np.float32)[..., None],
    )


IQ4_XS = BlockFormat("iq4_xs", block_len=256, block_bytes=136, encode=encode, decode=decode, codes=codes)
FORMATS.add(IQ4_XS.name, IQ4_XS)
