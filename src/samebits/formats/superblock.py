"""What super-blocks of 256 elements share: sub-blocks with integer scales, under one or two float16 numbers.

Q4_K and Q5_K have 8 sub-blocks of 32, with 6-bit scales and mins. Their header of 16 bytes: float16 d (0-1), float16
dmin (2-3), 8 scales and 8 mins of 6 bits (4-15, laid out in bits.split_six_bit_pairs). An element is worth
((d * scale) * q) - (dmin * min).
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
from samebits.formats.scaling import ZERO, extreme, nearest_codes, quotient

NUM_SUB_BLOCKS = 8
HEADER_BYTES = 16
TOP_SIX_BIT = 63


@np.errstate(over="ignore", invalid="ignore")  # as_scale refuses what overflows
def offset_sub_blocks(x: np.ndarray, top: int, top_scale: int, fmt: Format) -> tuple[np.ndarray, ...]:
    """(d, dmin [...], scales, mins uint8 0..top_scale [..., s], q uint8 0..top [..., s, n]) of x float32 [..., s, n].

    Per sub-block: offset = -min(0, min x), step = (max x + offset) / top. Per super-block, in float16:
    d = max(step) / top_scale, dmin = max(offset) / top_scale. Then scale = rint(step / d), min = rint(offset / dmin),
    q = rint((x + (dmin * min)) / (d * scale)), each half to even, saturated, and 0 over a zero divisor.
    """
    lowest = x.min(axis=-1)
    offset = np.where(lowest < 0, -lowest, ZERO)
    step = (x.max(axis=-1) + offset) / np.float32(top)
    d = as_scale(step.max(axis=-1) / np.float32(top_scale), fmt)
    dmin = as_scale(offset.max(axis=-1) / np.float32(top_scale), fmt)
    scales = nearest_codes(quotient(step, d[..., None]), 0, top_scale)
    mins = nearest_codes(quotient(offset, dmin[..., None]), 0, top_scale)
    stored_step = d[..., None] * scales.astype(np.float32)
    stored_offset = dmin[..., None] * mins.astype(np.float32)
    q = nearest_codes(quotient(x + stored_offset[..., None], stored_step[..., None]), 0, top)
    return d, dmin, scales.astype(np.uint8), mins.astype(np.uint8), q.astype(np.uint8)


def signed_scales(x: np.ndarray, lowest: int, half_scale: int, fmt: Format) -> tuple[np.ndarray, ...]:
    """(d [...], scales int32 -half_scale .. half_scale - 1 [..., s], x / (d * scale) [..., s, n]) of x [..., s, n].

    Per sub-block: step = extreme / lowest, so that the extreme gets the lowest code. d = (extreme step) / -half_scale
    in float16, scale = rint(step / d), half to even, saturated; quotients over zero are 0.
    """
    step = extreme(x) / np.float32(lowest)
    d = as_scale(extreme(step) / np.float32(-half_scale), fmt)
    scales = nearest_codes(quotient(step, d[..., None]), -half_scale, half_scale - 1)
    stored_step = d[..., None] * scales.astype(np.float32)
    return d, scales, quotient(x, stored_step[..., None])


def header_and_codes(x: np.ndarray, top: int, fmt: Format) -> tuple[np.ndarray, np.ndarray]:
    """Header uint8 [..., nb, 16] and codes uint8 0..top [..., nb, 8, 32] of rows x float32 [..., n]."""
    blocks = split_last(value_blocks(x, fmt), NUM_SUB_BLOCKS, BLOCK)
    d, dmin, scales, mins, q = offset_sub_blocks(blocks, top, TOP_SIX_BIT, fmt)
    return np.concatenate([f16_bytes(d), f16_bytes(dmin), pack_six_bit_pairs(scales, mins)], axis=-1), q


def affine_codes(header: np.ndarray, q: np.ndarray) -> Codes:
    """Codes of a header [..., nb, 16] and codes [..., nb, 8, 32]; one block of Codes per sub-block."""
    scales, mins = split_six_bit_pairs(header[..., 4:HEADER_BYTES])
    return Codes(
        q=merge(q, -3).astype(np.int8),
        d=np.repeat(read_f16(header, 0), NUM_SUB_BLOCKS, axis=-1),
        sub=merge(scales, -2).astype(np.float32)[..., None],
        m=np.repeat(-read_f16(header, 2), NUM_SUB_BLOCKS, axis=-1),
        msub=merge(mins, -2).astype(np.float32)[..., None],
    )


def half_scales(scales: np.ndarray) -> np.ndarray:
    """Scales of sub-blocks of 16 [..., nb, 16] as Codes has them: float32 [..., 8 nb, 2]."""
    return merge(split_last(scales.astype(np.float32), NUM_SUB_BLOCKS, 2), -3)
