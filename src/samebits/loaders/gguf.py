"""A bounded reader of GGUF files (versions 2 and 3, little-endian).

Nothing in the file is trusted: every count, length, dimension, type, offset and total is checked against the
file, in Python integers, before a view is made. Tensors are read-only views of the mapped file.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BlockFormat, HostTensor, Packed
from samebits.formats import FORMATS
from samebits.loaders.ggml_types import GGML_TYPES
from samebits.loaders.gguf_values import Cursor
from samebits.loaders.limits import MAX_KEY_BYTES, MAX_KEYS, MAX_TENSOR_NAME_BYTES, MAX_TENSORS
from samebits.loaders.source import TensorEntry, entry_of, open_regular

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32
MIN_KEY_BYTES = 13  # a name's length, a type, a byte
MIN_TENSOR_BYTES = 32  # a name's length, a rank, a dimension, a type, an offset


class Place(NamedTuple):
    """Where a tensor's bytes begin: in a mapped file, behind so many others."""

    data: bytes | mmap.mmap
    offset: int


@dataclass(frozen=True)
class GgufFile:
    """An open GGUF file, or several that hold one model: metadata, and tensors by their own names.

    Shapes are row-major: the last axis is the contiguous one, so GGUF's dimensions come reversed.
    """

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]
    places: dict[str, Place]

    def read(self, name: str) -> HostTensor:
        """A read-only view of the file; BadInput for a name or a format that is not there."""
        entry = entry_of(self, name)
        fmt, (data, offset) = FORMATS[entry.format], self.places[name]
        if isinstance(fmt, BlockFormat):
            rows = (*entry.shape[:-1], fmt.row_bytes(entry.shape[-1]))
            return Packed(fmt, np.frombuffer(data, np.uint8, entry.num_bytes, offset).reshape(rows))
        return np.ndarray(entry.shape, fmt.dtype, data, offset)

    def read_at(self, name: str, index: int) -> HostTensor:
        """A view of what the tensor has at an index of its first axis."""
        return self.read(name)[index]

    def release(self, name: str) -> None:
        """Drops the mapped pages of a tensor; those it shares with a neighbour are read again when needed."""
        data, offset = self.places[name]
        if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            start = offset // mmap.PAGESIZE * mmap.PAGESIZE
            data.madvise(mmap.MADV_DONTNEED, start, offset + self.tensors[name].num_bytes - start)


def is_gguf(path: Path) -> bool:
    """Whether a regular file begins as a GGUF file does."""
    open_regular(path)
    try:
        with path.open("rb") as stream:
            return stream.read(4) == MAGIC
    except OSError as error:
        raise BadInput(str(path), "file", error.strerror or error, "a readable file") from None


def open_gguf(path: Path) -> GgufFile:
    """The file at `path`, mapped and checked; BadInput says what is wrong in it."""
    if open_regular(path) == 0:
        raise BadInput(str(path), "file", "0 bytes", "a GGUF file")
    try:
        with path.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise BadInput(str(path), "file", error, "a readable file") from None
    return parse_gguf(data, path)


def parse_gguf(data: bytes | mmap.mmap, path: Path) -> GgufFile:
    """The GGUF file held in `data`; `path` only names it in messages."""
    cursor = Cursor(data, str(path))
    version = _version(cursor)
    num_tensors = cursor.count("tensor count", MAX_TENSORS, MIN_TENSOR_BYTES)
    metadata = _metadata(cursor)
    alignment = _alignment(cursor, metadata)
    tensors: dict[str, TensorEntry] = {}
    offsets: dict[str, int] = {}
    for i in range(num_tensors):
        entry, offset = _tensor(cursor, i, alignment)
        if entry.name in tensors:
            raise cursor.fail(f"tensor {entry.name}", "the same name twice", "one tensor of each name")
        tensors[entry.name] = entry
        offsets[entry.name] = offset
    data_start = _aligned(cursor.position, alignment)
    offsets = {name: data_start + offset for name, offset in offsets.items()}
    _check_layout(cursor, tensors, offsets, data_start, alignment)
    places = {name: Place(data, offset) for name, offset in offsets.items()}
    return GgufFile(path, version, metadata, tensors, places)


def raw_metadata(path: Path) -> dict[str, bytes]:
    """Every key's value as the file has it, its type before it: copies keep what readers do not tell apart."""
    with path.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = Cursor(data, str(path))
    _version(cursor)
    cursor.u64("tensor count")
    found: dict[str, bytes] = {}
    for i in range(cursor.count("metadata count", MAX_KEYS, MIN_KEY_BYTES)):
        key = cursor.string(f"name of metadata key {i}", MAX_KEY_BYTES)
        start = cursor.position
        cursor.value(cursor.u32(key), key)
        found[key] = bytes(data[start : cursor.position])
    return found


def _version(cursor: Cursor) -> int:
    start = cursor.take(4, "magic")
    magic = bytes(cursor.data[start : start + 4])
    if magic != MAGIC:
        raise cursor.fail("magic", magic, f"{MAGIC!r}: this is not a GGUF file")
    version = cursor.u32("version")
    if version not in VERSIONS:
        given = f"{version} (a big-endian file)" if version in (2 << 24, 3 << 24) else version
        raise cursor.fail("version", given, "2 or 3, little-endian")
    return version


def _metadata(cursor: Cursor) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(cursor.count("metadata count", MAX_KEYS, MIN_KEY_BYTES)):
        key = cursor.string(f"name of metadata key {i}", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.fail(f"metadata {_short(key)}", "the same key twice", "one value for each key")
        kind = cursor.u32(f"metadata {_short(key)}")
        metadata[key] = cursor.value(kind, f"metadata {_short(key)}")
    return metadata


def _alignment(cursor: Cursor, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    is_int = isinstance(alignment, int) and not isinstance(alignment, bool)
    if not is_int or not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.fail("general.alignment", _short(alignment), f"a power of two from 8 to {MAX_ALIGNMENT}")
    return int(alignment)


def _tensor(cursor: Cursor, index: int, alignment: int) -> tuple[TensorEntry, int]:
    """A tensor's record, and its offset from the start of the tensor data."""
    name = cursor.string(f"name of tensor {index}", MAX_TENSOR_NAME_BYTES)
    field = f"tensor {_short(name)}"
    num_dims = cursor.u32(field)
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.fail(field, f"{num_dims} dimensions", f"1 to {MAX_DIMS}")
    dims = [cursor.u64(field) for _ in range(num_dims)]
    kind = cursor.u32(field)
    offset = cursor.u64(field)
    if kind not in GGML_TYPES:
        raise cursor.fail(field, f"ggml type number {kind}", "a type that ggml has")
    ggml_type = GGML_TYPES[kind]
    if dims[0] % ggml_type.block_len:
        raise cursor.fail(field, f"rows of {dims[0]}", f"a multiple of {ggml_type.name}'s {ggml_type.block_len}")
    num_bytes = dims[0] // ggml_type.block_len * ggml_type.block_bytes
    for dim in dims[1:]:
        num_bytes *= dim
    if not 0 < num_bytes <= len(cursor.data):
        raise cursor.fail(field, f"{num_bytes} bytes for {dims}", f"1 to the file's {len(cursor.data)}")
    if offset % alignment:
        raise cursor.fail(field, f"offset {offset}", f"a multiple of the alignment {alignment}")
    shape = tuple(reversed(dims))
    return TensorEntry(name, shape, ggml_type.name, num_bytes, ggml_type.is_supported, cursor.where), offset


def _check_layout(
    cursor: Cursor, tensors: dict[str, TensorEntry], offsets: dict[str, int], data_start: int, alignment: int
) -> None:
    """Tensors must follow one another, padded to the alignment, and end where the file ends."""
    file_bytes, end = len(cursor.data), data_start
    for name in sorted(offsets, key=offsets.__getitem__):
        start, field = offsets[name], f"tensor {_short(name)}"
        if start < end:
            raise cursor.fail(field, f"bytes from {start}", f"bytes from {end}: it overlaps another tensor")
        if start > _aligned(end, alignment):
            raise cursor.fail(field, f"bytes from {start}", f"bytes from {_aligned(end, alignment)}: there is a hole")
        end = start + tensors[name].num_bytes
        if end > file_bytes:
            raise cursor.fail(field, f"bytes {start} to {end}", f"at most the file's {file_bytes}: it is truncated")
    if file_bytes > _aligned(end, alignment):
        raise cursor.fail("size", f"{file_bytes} bytes", f"{end}: there is something after the last tensor")


def _aligned(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment


def _short(value: object) -> str:
    """A name or value from the file, short and printable."""
    text = str(value)
    return ascii(text[:80])[1:-1] + ("..." if len(text) > 80 else "")
