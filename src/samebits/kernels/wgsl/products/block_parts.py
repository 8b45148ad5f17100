"""Block formats taken apart for shaders: heads of 4 or 8 blocks of 32, and codes of blocks.

format   blocks, and their head in texels of four words                     codes of a block
q4_0     8, 1: float16 d                                                    1: byte j holds elements j and 16 + j
q4_1     4, 1: float16 d, m in a word each                                  1
q8_0     8, 1: float16 d                                                    2: int8 in order
q4_k     8, 1: as in files: d, dmin, 6-bit scales and minimums              1
q6_k     8, 6: int8 scales of halves; float16 d; bits 4 and 5, 2 words each 1: bits 0 to 3
q5_0     8, 3: float16 d; bit 4, a word each                                1: bits 0 to 3
q5_1     4, 2: float16 d, m in a word each; bit 4, a word each              1: bits 0 to 3
q5_k     8, 3: as q4_k; bit 4, a word each                                  1: bits 0 to 3

Eight fields of 16 bits lie in a texel with those of blocks 0 to 3 in the lower halves of its words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CUT_BLOCKS = 8  # that are summed in one chain: a super-block of the k-quants
Split = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Parts:
    """How many blocks share a head, its texels, and those of a block's codes.

    split(uint8 [rows, blocks of the format, bytes]) -> uint32 [rows, heads, head, 4], [rows, blocks of 32, codes, 4]
    """

    blocks: int
    head: int
    codes: int
    split: Split


def _words(data: np.ndarray) -> np.ndarray:
    """uint8 [..., 4n] as uint32 [..., n]."""
    return np.ascontiguousarray(data).view("<u4")


def _together(fields: np.ndarray, blocks: int) -> np.ndarray:
    """[rows, blocks] as [rows, heads, blocks of a head], filled up with zeros."""
    missing = -fields.shape[1] % blocks
    padded = np.pad(fields, ((0, 0), (0, missing))) if missing else fields
    return padded.reshape(len(fields), -1, blocks)


def _halves(fields: np.ndarray) -> np.ndarray:
    """16-bit fields uint8 [rows, blocks, 2] as texels [rows, cuts, 1, 4]."""
    cuts = _together(np.ascontiguousarray(fields).view("<u2")[..., 0].astype(np.uint32), CUT_BLOCKS)
    return (cuts[..., :4] | (cuts[..., 4:] << np.uint32(16)))[:, :, None]


def _whole_words(fields: np.ndarray, blocks: int) -> np.ndarray:
    """32-bit fields uint8 [rows, blocks, 4] as texels [rows, heads, 1 or 2, 4]."""
    return _together(_words(fields)[..., 0], blocks).reshape(len(fields), -1, blocks // 4, 4)


def _texels(codes: np.ndarray) -> np.ndarray:
    """Codes uint8 [rows, blocks, 16n] as texels [rows, blocks, n, 4]."""
    return _words(codes).reshape(*codes.shape[:2], -1, 4)


def _pack_nibbles(low: np.ndarray) -> np.ndarray:
    """Four-bit codes uint8 [..., 32] as bytes [..., 16]: element j below element 16 + j."""
    packed: np.ndarray = low[..., :16] | (low[..., 16:] << np.uint8(4))
    return packed


def _pack_upper(bits: np.ndarray, width: int) -> np.ndarray:
    """Upper bits uint8 [..., 32] in words: field g of byte i of a word is that of its element 4g + i."""
    fields = bits.reshape(*bits.shape[:-1], -1, 8 // width, 4)
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    packed: np.ndarray = np.bitwise_or.reduce(fields << shifts, axis=-2)
    return packed.reshape(*bits.shape[:-1], -1)


def _q4_0(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _halves(raw[..., :2]), _texels(raw[..., 2:])


def _q4_1(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _whole_words(raw[..., :4], 4), _texels(raw[..., 4:])


def _fifth_bits(packed: np.ndarray, blocks: int) -> np.ndarray:
    """Of Q5_0 and Q5_1, uint8 [rows, blocks, 4], as texels of heads."""
    bits = np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")
    return _whole_words(_pack_upper(bits, 1), blocks)


def _q5_0(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([_halves(raw[..., :2]), _fifth_bits(raw[..., 2:6], 8)], axis=2), _texels(raw[..., 6:])


def _q5_1(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    head = np.concatenate([_whole_words(raw[..., :4], 4), _fifth_bits(raw[..., 4:8], 4)], axis=2)
    return head, _texels(raw[..., 8:])


def _blocks(codes: np.ndarray) -> np.ndarray:
    """[rows, super-blocks, 8, n] as [rows, blocks, n]."""
    return codes.reshape(len(codes), -1, codes.shape[-1])


def _super_nibbles(packed: np.ndarray) -> np.ndarray:
    """Nibbles of Q4_K and Q5_K, uint8 [rows, super-blocks, 128], as texels of blocks."""
    pairs = packed.reshape(*packed.shape[:2], 4, 32)
    first, second = pairs[..., :16], pairs[..., 16:]
    even = (first & np.uint8(15)) | (second << np.uint8(4))
    odd = (first >> np.uint8(4)) | (second & np.uint8(240))
    return _texels(_blocks(np.stack([even, odd], axis=3).reshape(*packed.shape[:2], 8, 16)))


def _q4_k(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _words(raw[..., :16])[:, :, None], _super_nibbles(raw[..., 16:])


def _q5_k(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bits = (raw[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    fifth = _whole_words(_blocks(_pack_upper(bits, 1)), CUT_BLOCKS)
    return np.concatenate([_words(raw[..., :16])[:, :, None], fifth], axis=2), _super_nibbles(raw[..., 48:])


def _q6_k(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, count = raw.shape[:2]
    quads = raw[..., :128].reshape(rows, count, 2, 1, 2, 32)
    low = np.concatenate([quads & np.uint8(15), quads >> np.uint8(4)], axis=3).reshape(rows, count, 8, 32)
    fields = raw[..., 128:192].reshape(rows, count, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    upper = _pack_upper((fields & np.uint8(3)).reshape(rows, count, 8, 32), 2)
    scales = _halves(raw[..., 192:208].reshape(rows, count * 8, 2))
    d = np.zeros((rows, count, 1, 4), np.uint32)
    d[..., 0, 0] = np.ascontiguousarray(raw[..., 208:]).view("<u2")[..., 0]
    head = np.concatenate([scales, d, _words(upper.reshape(rows, count, -1)).reshape(rows, count, 4, 4)], axis=2)
    return head, _texels(_blocks(_pack_nibbles(low)))


PARTS = {
    "q4_0": Parts(8, 1, 1, _q4_0),
    "q4_1": Parts(4, 1, 1, _q4_1),
    "q5_0": Parts(8, 3, 1, _q5_0),
    "q5_1": Parts(4, 2, 1, _q5_1),
    "q8_0": Parts(8, 1, 2, _q4_0),
    "q4_k": Parts(8, 1, 1, _q4_k),
    "q5_k": Parts(8, 3, 1, _q5_k),
    "q6_k": Parts(8, 6, 1, _q6_k),
}
