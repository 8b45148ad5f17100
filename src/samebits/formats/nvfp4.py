"""NVFP4 (canonical): 16 elements in 9 bytes, 4-bit floats under an e4m3 scale, and a scale for the tensor.

byte 0     e4m3 (float8_e4m3fn) s
byte 1-8   byte 1 + j: e[2j] in bits 0-3, e[2j + 1] in bits 4-7, for j in 0..7

e is E2M1: bit 3 the sign, bits 0-2 one of 0, 0.5, 1, 1.5, 2, 3, 4, 6.
An element is worth (e2m1(e) * s) * scale, with the tensor's float32 `scale`. A scale s of NaN is refused when a call is
bound or a model loaded. GGML's NVFP4 is another
format: other nibble order, ties toward zero, no tensor scale.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, FORMATS, BlockFormat, Codes
from samebits.formats.bits import (
    byte_blocks,
    byte_rows,
    merge,
    pack_fields,
    split_fields,
    split_last,
    value_blocks,
)
from samebits.formats.scaling import HALF, ONE, ZERO, quotient

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E4M3_NAN = 0x7F  # with either sign
E4M3_VALUES = np.arange(256, dtype=np.uint8).view(E4M3).astype(np.float32)
TWICE_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
LARGEST_E2M1 = np.float32(6)
LARGEST_BLOCK = np.float32(448 * 6)
# Largest input magnitude for which no decoded value overflows; smallest scale for which sums of terms stay normal.
LARGEST_INPUT = np.float32(2.0**127)
SMALLEST_SCALE = np.float32(2.0**-30)
LARGEST_GLOBAL = ONE / SMALLEST_SCALE


def global_scale(x: np.ndarray) -> np.float32:
    """gs = (448 * 6) / max|x|, at most 2^30; 1 for a tensor of zeros. Depends on the whole tensor."""
    largest: np.float32 = np.abs(x).max(initial=ZERO)
    if not largest <= LARGEST_INPUT:
        raise BadInput("nvfp4.encode", "x", f"magnitude {largest:g}", "finite values up to 2^127")
    if largest == 0:
        return ONE
    with np.errstate(over="ignore"):
        return min(LARGEST_BLOCK / largest, LARGEST_GLOBAL)


def nearest_e2m1(x: np.ndarray) -> np.ndarray:
    """uint8 E2M1 codes of float32 values: ties to the even code, saturated at 6, the sign kept on zero."""
    a = np.abs(x)
    above_tie = [a > t for t in (0.25, 1.25, 2.5, 5.0)]  # the tie stays below, at an even code
    from_tie = [a >= t for t in (0.75, 1.75, 3.5)]
    magnitude = np.stack(above_tie + from_tie).sum(axis=0, dtype=np.uint8)
    e: np.ndarray = magnitude | (np.signbit(x).astype(np.uint8) << np.uint8(3))
    return e


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """s = e4m3((gs * max16|x|) / 6), e = e2m1((x * gs) / s), scale = 1 / gs, all to nearest even."""
    block = value_blocks(x, NVFP4)
    gs = global_scale(x)
    s = ((gs * np.abs(block).max(axis=-1)) / LARGEST_E2M1).astype(E4M3)
    ratio = quotient(np.abs(block) * gs, s.astype(np.float32)[..., None])
    e = nearest_e2m1(np.copysign(ratio, block))
    nibbles = pack_fields(split_last(e, 8, 2).swapaxes(-1, -2), 4)
    return byte_rows(s.view(np.uint8)[..., None], nibbles), ONE / gs


def split(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """s float32 [..., nb] and E2M1 codes uint8 [..., nb, 16]."""
    block = byte_blocks(data, NVFP4)
    return E4M3_VALUES[block[..., 0]], merge(split_fields(block[..., 1:], 4).swapaxes(-1, -2), -2)


@np.errstate(over="ignore", invalid="ignore")  # a foreign tensor scale may be anything
def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    s, e = split(data)
    return merge((E2M1_VALUES[e] * s[..., None]) * scale, -2)


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    """Two blocks of 16 make a block of 32, q = 2 e2m1(e); BadInput for a row with an odd number of blocks."""
    s, e = split(data)
    num_blocks, rest = divmod(s.shape[-1], 2)
    if rest:
        raise BadInput("nvfp4.codes", "row length", s.shape[-1] * NVFP4.block_len, f"a multiple of {BLOCK}")
    sub = split_last(s, num_blocks, 2)
    q = split_last(merge(TWICE_E2M1[e], -2), num_blocks, BLOCK)
    return Codes(q=q, d=np.full(sub.shape[:-1], HALF * scale, np.float32), sub=sub)


def check(data: np.ndarray, where: str, argument: str) -> None:
    """Raise BadInput for a scale that is NaN."""
    if ((byte_blocks(data, NVFP4)[..., 0] & E4M3_NAN) == E4M3_NAN).any():
        raise BadInput(where, argument, "a block scale of NaN", "numbers")


NVFP4 = BlockFormat(
    "nvfp4", block_len=16, block_bytes=9, encode=encode, decode=decode, codes=codes, check=check, f16_at=()
)
FORMATS.add(NVFP4.name, NVFP4)
