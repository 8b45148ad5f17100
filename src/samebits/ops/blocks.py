"""Blocks of any bytes: what other programs may have written, and our own packing never makes."""

from __future__ import annotations

import numpy as np

from samebits.core.format import BlockFormat, Packed
from samebits.core.numerics.counter import Stream
from samebits.formats.nvfp4 import E4M3_NAN

ANY_BYTES = "any-bytes"
MXFP4_QUARTER = np.uint8(125)  # MXFP4's first byte is its only scale, a power of two; NVFP4's is an e4m3
TENSOR_SCALE = np.float32(-0.37)  # our own packing never makes a negative one


def any_blocks(fmt: BlockFormat, shape: tuple[int, int], stream: Stream) -> Packed:
    """Rows whose bytes are all random, but for scales: of either sign, below 1/4, zeros and subnormals among them."""
    num_rows, width = shape
    row_bytes = fmt.row_bytes(width)
    data = stream.child("bytes").integers(0, 256, (num_rows, row_bytes)).astype(np.uint8)
    blocks = data.reshape(num_rows, -1, fmt.block_bytes)
    if fmt.name == "nvfp4":
        first = blocks[..., 0]
        first[(first & E4M3_NAN) == E4M3_NAN] -= 1
        return Packed(fmt, data, TENSOR_SCALE)
    if fmt.name == "mxfp4":
        blocks[..., 0] %= MXFP4_QUARTER
        return Packed(fmt, data)
    for at in fmt.f16_at:
        bits = stream.child(f"scale {at}").integers(0, 1 << 16, blocks.shape[:2]).astype(np.uint16)
        exponent = (bits >> np.uint16(10) & np.uint16(31)) % np.uint16(13)
        halves = bits & np.uint16(0x83FF) | exponent << np.uint16(10)
        blocks[..., at : at + 2] = halves[..., None].view(np.uint8)
    return Packed(fmt, data)
