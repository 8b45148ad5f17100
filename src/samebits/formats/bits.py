"""The bit fields that block formats are built of. Bytes are uint8, multi-byte fields little-endian."""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import Format
from samebits.core.numerics.rounding import F16, rounded

LITTLE_F16 = np.dtype("<f2")


def merge(a: np.ndarray, axis: int) -> np.ndarray:
    """`a` with `axis` and the axis after it made one."""
    axis %= a.ndim
    shape = a.shape
    return a.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def split_last(a: np.ndarray, *tail: int) -> np.ndarray:
    """`a` with its last axis taken apart into axes of the lengths `tail`."""
    return a.reshape(*a.shape[:-1], *tail)


def value_blocks(x: np.ndarray, fmt: Format) -> np.ndarray:
    """float32 [..., n] as [..., num_blocks, block_len]; BadInput for a ragged row."""
    num_blocks = fmt.row_bytes(x.shape[-1]) // fmt.block_bytes
    return split_last(x, num_blocks, fmt.block_len)


def byte_blocks(data: np.ndarray, fmt: Format) -> np.ndarray:
    """uint8 [..., row_bytes] as [..., num_blocks, block_bytes]; BadInput unless a row holds whole blocks."""
    num_blocks, rest = divmod(data.shape[-1], fmt.block_bytes)
    if rest:
        raise BadInput(fmt.name, "data", f"rows of {data.shape[-1]} bytes", f"whole blocks of {fmt.block_bytes} bytes")
    return split_last(data, num_blocks, fmt.block_bytes)


def byte_rows(*fields: np.ndarray) -> np.ndarray:
    """uint8 [..., row_bytes] of a block's fields [..., num_blocks, field_bytes] in their order in memory."""
    return merge(np.concatenate(fields, axis=-1), -2)


def read_f16(blocks: np.ndarray, at: int) -> np.ndarray:
    """float32 [...]: the float16 at byte `at` of blocks [..., num_bytes]."""
    halves = np.ascontiguousarray(blocks[..., at : at + 2]).view(LITTLE_F16)[..., 0]
    with np.errstate(invalid="ignore"):  # a signaling NaN is data here
        return halves.astype(np.float32)


def f16_bytes(x: np.ndarray) -> np.ndarray:
    """uint8 [..., 2] of float32 values, rounded to nearest even."""
    return rounded(x, F16).astype(LITTLE_F16)[..., None].view(np.uint8)


def as_scale(x: np.ndarray, fmt: Format) -> np.ndarray:
    """float32 values rounded to float16; BadInput where one is not finite."""
    scale = rounded(x, F16).astype(np.float32)
    if not np.isfinite(scale).all():
        raise BadInput(
            f"{fmt.name}.encode", "x", "NaN, Inf or a block scale beyond float16", "block scales up to 65504"
        )
    return scale


def split_fields(packed: np.ndarray, width: int) -> np.ndarray:
    """uint8 [..., n] as [..., 8 / width, n]: the fields of `width` bits in each byte, lowest first."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    return (packed[..., None, :] >> shifts[:, None]) & np.uint8((1 << width) - 1)


def pack_fields(fields: np.ndarray, width: int) -> np.ndarray:
    """Undoes split_fields; every field must be below 2^width."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    return (fields << shifts[:, None]).sum(axis=-2, dtype=np.uint8)  # the fields do not overlap


def split_nibbles(packed: np.ndarray) -> np.ndarray:
    """uint8 [..., n] as [..., 2n]: all low nibbles, then all high nibbles."""
    return merge(split_fields(packed, 4), -2)


def pack_nibbles(q: np.ndarray) -> np.ndarray:
    """Undoes split_nibbles."""
    return pack_fields(split_last(q, 2, q.shape[-1] // 2), 4)


def split_five_bits(packed: np.ndarray) -> np.ndarray:
    """uint8 [..., 20] as codes 0..31 [..., 32]: 4 bytes of fifth bits, then 16 of nibbles (Q5_0, Q5_1)."""
    fifth = np.unpackbits(np.ascontiguousarray(packed[..., :4]), axis=-1, bitorder="little")
    q: np.ndarray = split_nibbles(packed[..., 4:]) | (fifth << np.uint8(4))
    return q


def pack_five_bits(q: np.ndarray) -> np.ndarray:
    """Undoes split_five_bits."""
    fifth = np.packbits(q >> np.uint8(4), axis=-1, bitorder="little")
    return np.concatenate([fifth, pack_nibbles(q & np.uint8(15))], axis=-1)


def split_six_bit_pairs(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 12 scale bytes of Q4_K and Q5_K as two arrays of codes 0..63 [..., 8]: scales, mins.

    byte      bits 0-3          bits 4-5          bits 6-7
    0 + i     scale[i]          scale[i]          scale[4 + i] bits 4-5
    4 + i     min[i]            min[i]            min[4 + i] bits 4-5
    8 + i     scale[4 + i] bits 0-3, then in bits 4-7 min[4 + i] bits 0-3
    """
    scale_head, min_head, tail = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([scale_head & 63, (tail & 15) | ((scale_head >> 6) << 4)], axis=-1)
    mins = np.concatenate([min_head & 63, (tail >> 4) | ((min_head >> 6) << 4)], axis=-1)
    return scales, mins


def pack_six_bit_pairs(scales: np.ndarray, mins: np.ndarray) -> np.ndarray:
    """Undoes split_six_bit_pairs."""
    scale_head = scales[..., :4] | ((scales[..., 4:] >> 4) << 6)
    min_head = mins[..., :4] | ((mins[..., 4:] >> 4) << 6)
    tail = (scales[..., 4:] & 15) | ((mins[..., 4:] & 15) << 4)
    return np.concatenate([scale_head, min_head, tail], axis=-1)
