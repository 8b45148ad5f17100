"""An array of strings without an object for each: vocabularies hold hundreds of thousands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np


class Texts(Sequence[str]):
    """Strings as one run of UTF-8 and the byte where each ends; a string is made when it is asked for."""

    def __init__(self, data: bytes, lengths: np.ndarray) -> None:
        """`lengths` in bytes, whose sum is that of `data`; `first_wrong` tells whether all of it can be read."""
        self.data = data
        self.ends = np.cumsum(lengths, dtype=np.uint32)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._bytes(range(len(self))[index]).decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        """Cut from the whole, decoded once: many times faster than one by one."""
        is_first = (np.frombuffer(self.data, np.uint8) & 0xC0) != 0x80  # byte of a character
        ends = np.concatenate([[0], np.cumsum(is_first)])[self.ends].tolist()
        return map(self.data.decode("utf-8").__getitem__, map(slice, [0, *ends[:-1]], ends))

    def lengths(self) -> np.ndarray:
        """int64, the bytes of every string."""
        return np.diff(self.ends.astype(np.int64), prepend=0)

    def first_wrong(self) -> int | None:
        """The first string that is not UTF-8 by itself, if any."""
        if self._is_utf8():
            return None
        return next(i for i in range(len(self)) if not _is_utf8(self._bytes(i)))

    def _bytes(self, i: int) -> bytes:
        return self.data[int(self.ends[i - 1]) if i else 0 : int(self.ends[i])]

    def _is_utf8(self) -> bool:
        """All strings are when the whole run is and none of them ends inside a character."""
        cuts = self.ends[self.ends < len(self.data)]
        is_inside = (np.frombuffer(self.data, np.uint8)[cuts] & 0xC0) == 0x80
        return not is_inside.any() and _is_utf8(self.data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def texts_of(strings: Iterable[str]) -> Texts:
    """These strings as such an array."""
    parts = [text.encode("utf-8") for text in strings]
    return Texts(b"".join(parts), np.array(list(map(len, parts)), np.int64))
