"""What Q4_K and Q5_K share: 256 elements in 8 sub-blocks of 32, with 6-bit scales and mins.

Header of 16 bytes: float16 d (0-1), float16 dmin (2-3), 8 scales and 8 mins of 6 bits (4-15,
laid out in bits.split_six_bit_pairs). An element is worth ((d * scale) * q) - (dmin * min).
"""

from __future__ import annotations

import numpy as np

from samebits.core.format import BLOCK, Codes, Format
from samebits.formats.bits import (
    as_scale,
    f16_bytes,
    merge,
    pack_six_bit_pairs,
    read_f16,
    split_last,
    split_six_bit_pairs,
    value_blocks,
)
from samebits.formats.scaling import ZERO, nearest_codes, quotient

NUM_SUB_BLOCKS = 8
HEADER_BYTES = 16
TOP_SIX_BIT = 63


@np.errstate(over="ignore", invalid="ignore")  # as_scale refuses what overflows
def header_and_codes(x: np.ndarray, top: int, fmt: Format) -> tuple[np.ndarray, np.ndarray]:
    """Header uint8 [..., nb, 16] and codes uint8 0..top [..., nb, 8, 32] of rows x float32 [..., n].

    Per sub-block: offset = -min(0, min x), step = (max x + offset) / top. Per super-block, in float16:
    d = max(step) / 63, dmin = max(offset) / 63. Then scale = rint(step / d), min = rint(offset / dmin),
    q = rint((x + (dmin * min)) / (d * scale)), each half to even, saturated, and 0 over a zero divisor.
    """
    x = split_last(value_blocks(x, fmt), NUM_SUB_BLOCKS, BLOCK)
    lowest = x.min(axis=-1)
    offset = np.where(lowest < 0, -lowest, ZERO)
    step = (x.max(axis=-1) + offset) / np.float32(top)
    d = as_scale(step.max(axis=-1) / np.float32(TOP_SIX_BIT), fmt)
    dmin = as_scale(offset.max(axis=-1) / np.float32(TOP_SIX_BIT), fmt)
    scales = nearest_codes(quotient(step, d[..., None]), 0, TOP_SIX_BIT)
    mins = nearest_codes(quotient(offset, dmin[..., None]), 0, TOP_SIX_BIT)
    stored_step = d[..., None] * scales.astype(np.float32)
    stored_offset = dmin[..., None] * mins.astype(np.float32)
    q = nearest_codes(quotient(x + stored_offset[..., None], stored_step[..., None]), 0, top)
    pairs = pack_six_bit_pairs(scales.astype(np.uint8), mins.astype(np.uint8))
    return np.concatenate([f16_bytes(d), f16_bytes(dmin), pairs], axis=-1), q.astype(np.uint8)


def affine_codes(header: np.ndarray, q: np.ndarray) -> Codes:
    """Codes of a header [..., nb, 16] and codes [..., nb, 8, 32]; one block of Codes per sub-block."""
    scales, mins = split_six_bit_pairs(header[..., 4:HEADER_BYTES])
    return Codes(
        q=merge(q, -3).astype(np.int8),
        d=np.repeat(read_f16(header, 0), NUM_SUB_BLOCKS, axis=-1),
        sub=merge(scales, -2).astype(np.float32)[..., None],
        m=np.repeat(-read_f16(header, 2), NUM_SUB_BLOCKS, axis=-1),
        msub=merge(mins, -2).astype(np.float32),
    )
