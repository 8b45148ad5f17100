"""A cursor over the bytes of a GGUF file that never reads past them, and the metadata values it reads."""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.loaders.limits import (
    MAX_ELEMENTS,
    MAX_HEADER_BYTES,
    MAX_NESTED_ARRAYS,
    MAX_NESTING,
    MAX_STRING_BYTES,
    MAX_STRINGS,
)
from samebits.loaders.native import native
from samebits.loaders.texts import Texts

STRING, ARRAY, BOOL = 8, 9, 7
SCALARS: dict[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    BOOL: "<B",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRINGS_IN_ALL = f", what is left of {MAX_STRINGS} strings in the file's arrays"
_ARRAYS_IN_ALL = f", what is left of {MAX_NESTED_ARRAYS} arrays within arrays"
_ELEMENTS_IN_ALL = f", what is left of {MAX_ELEMENTS} elements in the file's arrays"
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class Cursor:
    """Reads forward through `data`. Every read is checked against the end first; BadInput names file and field."""

    def __init__(self, data: bytes | mmap.mmap, where: str) -> None:
        self.data = data
        self.where = where
        self.position = 0
        self.end = min(len(data), MAX_HEADER_BYTES)
        self._num_elements_left = MAX_ELEMENTS
        self._num_strings_left = MAX_STRINGS
        self._num_arrays_left = MAX_NESTED_ARRAYS

    @property
    def num_left(self) -> int:
        return self.end - self.position

    def fail(self, field: str, given: object, needed: str) -> BadInput:
        return BadInput(self.where, field, given, needed)

    def take(self, num_bytes: int, field: str) -> int:
        """The position of the next `num_bytes`, which are now behind the cursor."""
        if num_bytes > self.num_left:
            limit = "the header's limit" if self.end < len(self.data) else "the file"
            raise self.fail(
                field, f"{num_bytes} bytes at {self.position}", f"at most the {self.num_left} left in {limit}"
            )
        start = self.position
        self.position += num_bytes
        return start

    def u32(self, field: str) -> int:
        return int(_U32.unpack_from(self.data, self.take(4, field))[0])

    def u64(self, field: str) -> int:
        return int(_U64.unpack_from(self.data, self.take(8, field))[0])

    def count(self, field: str, limit: int, min_bytes_each: int, in_all: str = "") -> int:
        """A u64 that promises as many items; refused unless the limit and the bytes left allow them.

        `in_all` ends the message where the limit is what other counts have left of one.
        """
        value = self.u64(field)
        if value > limit:
            raise self.fail(field, value, f"at most {limit}{in_all}")
        if value * min_bytes_each > self.num_left:
            raise self.fail(field, value, f"at most what the {self.num_left} bytes left can hold")
        return value

    def string(self, field: str, limit: int = MAX_STRING_BYTES) -> str:
        num_bytes = self.u64(field)
        if num_bytes > limit:
            raise self.fail(field, f"a string of {num_bytes} bytes", f"at most {limit}")
        start = self.take(num_bytes, field)
        try:
            return self.data[start : start + num_bytes].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(field, f"bytes that are not UTF-8 ({error.reason})", "UTF-8 text") from None

    def value(self, kind: int, field: str, depth: int = 0) -> Any:
        """A metadata value: bool, int, float, str; an array of numbers as numpy, of strings as Texts, else a list."""
        if kind == STRING:
            return self.string(field)
        if kind == ARRAY:
            return self._array(field, depth + 1)
        if kind not in SCALARS:
            raise self.fail(field, f"value type {kind}", "one of 0 to 12")
        code = struct.Struct(SCALARS[kind])
        (number,) = code.unpack_from(self.data, self.take(code.size, field))
        if kind != BOOL:
            return number
        if number > 1:
            raise self.fail(field, f"a bool of value {number}", "0 or 1")
        return bool(number)

    def _array(self, field: str, depth: int) -> Any:
        """The array at the cursor; what all arrays of the file hold is bounded together."""
        if depth > MAX_NESTING:
            raise self.fail(field, f"arrays nested {depth} deep", f"at most {MAX_NESTING}")
        kind = self.u32(field)
        if kind == STRING:
            length = self.count(field, min(self._num_strings_left, self._num_elements_left), 8, _STRINGS_IN_ALL)
            self._num_strings_left -= length
            self._num_elements_left -= length
            return self._strings(field, length)
        if kind == ARRAY:
            length = self.count(field, self._num_arrays_left, 12, _ARRAYS_IN_ALL)
            self._num_arrays_left -= length
            return [self._array(field, depth + 1) for _ in range(length)]
        if kind not in SCALARS:
            raise self.fail(field, f"an array of value type {kind}", "one of 0 to 12")
        dtype = np.dtype(SCALARS[kind])
        length = self.count(field, self._num_elements_left, dtype.itemsize, _ELEMENTS_IN_ALL)
        self._num_elements_left -= length
        start = self.take(length * dtype.itemsize, field)
        numbers = np.frombuffer(self.data, dtype, length, start).copy()
        if kind != BOOL:
            return numbers
        if length and numbers.max() > 1:
            raise self.fail(field, f"a bool of value {numbers.max()}", "0 or 1")
        return numbers.astype(bool)

    def _strings(self, field: str, length: int) -> Texts:
        """As `string`, `length` times, in one copy without the lengths between."""
        module, found = native(), None
        if module is not None:
            data = np.frombuffer(self.data, np.uint8)
            found = module.strings(data, self.position, self.end, length, MAX_STRING_BYTES)
        if found is None:
            found = self._python_strings(field, length)  # which names the one that is wrong
        text, lengths, self.position = found
        texts = Texts(text, np.frombuffer(lengths, np.int64))
        if (wrong := texts.first_wrong()) is not None:
            raise self.fail(f"{field}[{wrong}]", "bytes that are not UTF-8", "UTF-8 text")
        return texts

    def _python_strings(self, field: str, length: int) -> tuple[bytes, bytes, int]:
        """(the strings one after another, their lengths as int64, the position behind them) without native code."""
        data, end, start, lengths = self.data, self.end, self.position, []
        position = start
        for i in range(length):
            num_bytes = _U64.unpack_from(data, position)[0] if position + 8 <= end else end
            position += 8 + num_bytes
            if position > end:
                raise self.fail(f"{field}[{i}]", "a string that runs past the end", f"at most {end} bytes in all")
            if num_bytes > MAX_STRING_BYTES:
                raise self.fail(f"{field}[{i}]", f"a string of {num_bytes} bytes", f"at most {MAX_STRING_BYTES}")
            lengths.append(num_bytes)
        sizes = np.array(lengths, np.int64)
        is_text = np.ones(position - start, bool)
        starts = np.cumsum(sizes + 8) - sizes - 8
        for byte in range(8):
            is_text[starts + byte] = False
        text = np.frombuffer(data, np.uint8, len(is_text), start)[is_text].tobytes()
        return text, sizes.tobytes(), position
