"""MXFP4: 32 elements in 17 bytes, 4-bit floats under a power of two.

byte 0      E8M0 s: 2^(s - 127); NaN where s is 255
byte 1-16   byte 1 + j: e[j] in bits 0-3, e[16 + j] in bits 4-7, for j in 0..15

e is E2M1, as in nvfp4.py. An element is worth e2m1(e) * 2^(s - 127), and 0 where s is below 78: then no element and no
d is smaller than a settled number (docs/numerics.md). Ops take scales up to 2^40, with which no term of a block
overflows; NaN and larger ones are refused when a call is bound or a model loaded.
"""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, Codes
from samebits.formats.bits import byte_blocks, byte_rows, pack_nibbles, split_nibbles, value_blocks
from samebits.formats.nvfp4 import TWICE_E2M1
from samebits.formats.scaling import ONE, values

BIAS = 127
SMALLEST_BYTE = 78  # half of its 2^-49 is the smallest settled number
LARGEST_BYTE = 167  # 2^40: 2^39 times the largest integer sum and activation scale stays below 2^128
NAN_BYTE = 255
E2M1_EXPONENT = 2  # of the largest element, 6
# Halves between neighbouring magnitudes, in elements: a tie takes the smaller one.
TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


def _half_scales() -> np.ndarray:
    """float32 [256]: d by the scale's byte, half of what it stands for."""
    scales = np.ldexp(ONE, np.arange(256) - BIAS - 1).astype(np.float32)
    scales[:SMALLEST_BYTE] = 0
    scales[NAN_BYTE] = np.nan
    return scales


HALF_SCALES = _half_scales()


def encode(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """s = the exponent of max|x| less 2, e nearest to x / 2^(s - 127), ties to zero, saturated at 6.

    A block whose scale would be below 2^-49 is stored as zeros; BadInput for one above 2^40. Elsewhere gguf-py's bytes,
    but where max|x| is so little below a power of two that its float32 logarithm rounds up.
    """
    block = value_blocks(x, MXFP4)
    exponent = np.frexp(np.abs(block).max(axis=-1))[1] - 1 - E2M1_EXPONENT
    if not np.isfinite(block).all() or (exponent + BIAS > LARGEST_BYTE).any():
        raise BadInput("mxfp4.encode", "x", "NaN, Inf or a block scale beyond 2^40", "block scales up to 2^40")
    is_zero = (exponent + BIAS < SMALLEST_BYTE) | ~block.any(axis=-1)
    ratio = np.where(is_zero[..., None], 0, np.ldexp(block, -exponent[..., None]))
    magnitude = np.stack([np.abs(ratio) > tie for tie in TIES]).sum(axis=0, dtype=np.uint8)
    sign = ((ratio < 0) & (magnitude > 0)).astype(np.uint8)
    s = np.where(is_zero, 0, exponent + BIAS).astype(np.uint8)
    return byte_rows(s[..., None], pack_nibbles(magnitude | (sign << np.uint8(3)))), ONE


@np.errstate(over="ignore")  # under a scale that ops refuse
def decode(data: np.ndarray, scale: np.float32) -> np.ndarray:
    return values(codes(data, scale))


def codes(data: np.ndarray, scale: np.float32) -> Codes:
    """q = 2 e2m1(e), d = half the block's scale."""
    block = byte_blocks(data, MXFP4)
    return Codes(q=TWICE_E2M1[split_nibbles(block[..., 1:])], d=HALF_SCALES[block[..., 0]])


def check(data: np.ndarray, where: str, argument: str) -> None:
    """BadInput for a scale that is NaN or above 2^40."""
    largest = int(byte_blocks(data, MXFP4)[..., 0].max(initial=0))
    if largest > LARGEST_BYTE:
        given = "NaN" if largest == NAN_BYTE else f"2^{largest - BIAS}"
        raise BadInput(where, argument, f"a block scale of {given}", f"up to 2^{LARGEST_BYTE - BIAS}")


MXFP4 = BlockFormat(
    "mxfp4", block_len=32, block_bytes=17, encode=encode, decode=decode, codes=codes, check=check, f16_at=()
)
FORMATS.add(MXFP4.name, MXFP4)
