"""A GGUF file's header as bytes: metadata values, and where each tensor will lie."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from samebits.core.format import FORMATS
from samebits.loaders.ggml_types import GGML_TYPES
from samebits.loaders.gguf import DEFAULT_ALIGNMENT, MAGIC

VERSION = 3
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NUMBERS = {t.name: number for number, t in GGML_TYPES.items() if t.is_supported}


@dataclass(frozen=True)
class OutTensor:
    """A tensor of a file to be written: its name there, its row-major shape, its format."""

    name: str
    shape: tuple[int, ...]
    format: str

    @property
    def num_bytes(self) -> int:
        return prod(self.shape[:-1]) * FORMATS[self.format].row_bytes(self.shape[-1])


def u32(value: int) -> bytes:
    return struct.pack("<II", U32, value)


def f32(value: float) -> bytes:
    return struct.pack("<If", F32, value)


def boolean(value: bool) -> bytes:
    return struct.pack("<IB", BOOL, value)


def string(value: str) -> bytes:
    return struct.pack("<I", STRING) + text(value)


def strings(values: Sequence[str]) -> bytes:
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(text, values))


def numbers(values: Sequence[int] | Sequence[float] | np.ndarray, kind: int) -> bytes:
    """An array of I32 or F32."""
    dtype = np.dtype("<i4" if kind == I32 else "<f4")
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + np.asarray(values, dtype).tobytes()


def text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def aligned(position: int) -> int:
    return -(-position // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def header(metadata: Mapping[str, bytes], tensors: Sequence[OutTensor]) -> bytes:
    """Everything before the tensors' bytes, which follow one another, each from a multiple of the alignment on.

    metadata  of each key, its value's type and its value
    """
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    parts += [text(key) + value for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        dims = tensor.shape[::-1]
        parts.append(text(tensor.name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims))
        parts.append(struct.pack("<IQ", NUMBERS[tensor.format], offset))
        offset = aligned(offset + tensor.num_bytes)
    data = b"".join(parts)
    return data + bytes(aligned(len(data)) - len(data))
