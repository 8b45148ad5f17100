"""All tokens' texts as one run of the bytes they are matched by, for the native encoders."""

from __future__ import annotations

import numpy as np

from samebits.loaders.byte_level import BYTE_OF_CHAR, SPACE_MARK
from samebits.loaders.texts import Texts

SPACE = 0x20
MARK_BYTES = tuple(SPACE_MARK.encode("utf-8"))
NO_BYTE = 256


def byte_level_bytes(texts: Texts) -> tuple[bytes, np.ndarray]:
    """The bytes that byte-level texts stand for, and where each token's end, uint32.

    A text with a character outside the table is no run of bytes: nothing is left of it.
    """
    table = np.full(max(map(ord, BYTE_OF_CHAR)) + 2, NO_BYTE, np.uint16)
    table[[ord(char) for char in BYTE_OF_CHAR]] = list(BYTE_OF_CHAR.values())
    codes = np.frombuffer(texts.data.decode("utf-8").encode("utf-32-le"), np.uint32)
    found = table[np.minimum(codes, len(table) - 1)]
    is_first = (np.frombuffer(texts.data, np.uint8) & 0xC0) != 0x80  # byte of a character
    ends = np.concatenate([[0], np.cumsum(is_first)])[texts.ends]
    return _without(found.astype(np.uint8), ends, found == NO_BYTE, np.ones(len(found), bool))


def sentence_piece_bytes(texts: Texts) -> tuple[bytes, np.ndarray]:
    """The UTF-8 of SentencePiece texts with spaces for their marks, and where each token's ends, uint32.

    Nothing is left of a text that holds a space of its own: no text to encode has one once its spaces are marks.
    """
    data = np.frombuffer(texts.data, np.uint8).copy()
    is_wrong, is_kept = data == SPACE, np.ones(len(data), bool)
    first, second, third = MARK_BYTES
    marks = np.flatnonzero((data[:-2] == first) & (data[1:-1] == second) & (data[2:] == third))
    data[marks] = SPACE
    is_kept[marks + 1] = is_kept[marks + 2] = False
    return _without(data, texts.ends.astype(np.int64), is_wrong, is_kept)


def _without(data: np.ndarray, ends: np.ndarray, is_wrong: np.ndarray, is_kept: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The kept part of `data`, less all of the tokens that have something wrong, and the ends in what is left."""
    lengths = np.diff(ends, prepend=0)
    num_wrong = np.diff(np.concatenate([[0], np.cumsum(is_wrong)])[ends], prepend=0)
    is_kept = is_kept & np.repeat(num_wrong == 0, lengths)
    return data[is_kept].tobytes(), np.concatenate([[0], np.cumsum(is_kept)])[ends].astype(np.uint32)
