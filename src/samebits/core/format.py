"""What a tensor's elements are made of: plain types and block formats under one name.

A host tensor is a numpy array for a plain format and a `Packed` for a block format.
The formats live in `samebits.formats`, one file each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.registry import Registry
from samebits.core.shapes import TensorSpec

BLOCK = 32  # integer products are summed over blocks of 32 elements in every quantized format


@dataclass(frozen=True)
class Codes:
    """A block-quantized matrix taken apart for integer arithmetic, in blocks of 32 along K.

    value[..., b, k] = d[b] * sub[b, half(k)] * q[b, k] + m[b] * msub[b, half(k)]

    q     int8    [..., nb, 32]  integer codes
    d     float32 [..., nb]      scale of the block
    sub   float32 [..., nb, h]   sub-scales: h = 1 for the block, 2 for its 16-wide halves, or None for 1;
                                 f(isum) * sub is exact in float32
    m     float32 [..., nb]      offset of the block, or None
    msub  float32 [..., nb, h]   sub-scales of the offset, alike: f(asum) * msub is exact; None for 1
    """

    q: np.ndarray
    d: np.ndarray
    sub: np.ndarray | None = None
    m: np.ndarray | None = None
    msub: np.ndarray | None = None


@dataclass(frozen=True)
class Format:
    """A name and a size. A plain format is its numpy dtype, in blocks of one element."""

    name: str
    block_len: int
    block_bytes: int
    dtype: np.dtype | None = None

    @property
    def is_block(self) -> bool:
        return self.dtype is None

    def row_bytes(self, num_elements: int) -> int:
        """Bytes of a row; BadInput unless it holds whole blocks."""
        if num_elements % self.block_len:
            raise BadInput(self.name, "row length", num_elements, f"a multiple of the block length {self.block_len}")
        return num_elements // self.block_len * self.block_bytes


def _any_bytes(data: np.ndarray, where: str, argument: str) -> None:
    """Of a format that has no bytes which no op could compute with."""


@dataclass(frozen=True, kw_only=True)
class BlockFormat(Format):
    """A format whose elements share scales, with the way in and out of float32.

    encode(x float32 [..., n]) -> (bytes uint8 [..., n / block_len * block_bytes], tensor scale)
    decode(bytes, tensor scale) -> float32 [..., n]
    codes(bytes, tensor scale) -> Codes
    check(bytes, where, argument) -> BadInput for bytes that no op could compute with
    f16_at: where in a block float16 scales begin, in bytes
    """

    encode: Callable[[np.ndarray], tuple[np.ndarray, np.float32]] = field(repr=False)
    decode: Callable[[np.ndarray, np.float32], np.ndarray] = field(repr=False)
    codes: Callable[[np.ndarray, np.float32], Codes] = field(repr=False)
    check: Callable[[np.ndarray, str, str], None] = field(default=_any_bytes, repr=False)
    f16_at: tuple[int, ...] = (0,)

    def pack(self, x: np.ndarray) -> Packed:
        """x float32 [..., n] as a packed tensor; BadInput for a ragged row or a non-finite value."""
        with np.errstate(over="ignore"):  # beyond float32 becomes Inf, refused below
            x = np.ascontiguousarray(x, dtype=np.float32)
        self.row_bytes(x.shape[-1])
        if not np.isfinite(x).all():
            raise BadInput(f"{self.name}.pack", "x", "NaN or Inf", "finite values")
        data, scale = self.encode(x)
        return Packed(self, data, scale)


FORMATS: Registry[Format] = Registry("format")


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes of a tensor with symbols at their upper bound, rows packed one after another."""
    shape, fmt = spec.upper_shape, FORMATS[spec.format]
    return prod(shape[:-1]) * fmt.row_bytes(shape[-1]) if shape else fmt.block_bytes


@dataclass(frozen=True)
class Packed:
    """A tensor in a block format. Blocks run along the last axis.

    data   uint8 [..., row_bytes]; C-contiguous in its last axis; may be a view and may be written in place
    scale  one float32 multiplier for the whole tensor (NVFP4's global scale; 1 elsewhere)
    """

    format: BlockFormat
    data: np.ndarray
    scale: np.float32 = np.float32(1)

    def __post_init__(self) -> None:
        if not isinstance(self.format, BlockFormat):
            raise BadInput("Packed", "format", self.format, "a block format")
        if self.data.dtype != np.uint8 or self.data.ndim < 1:
            raise BadInput("Packed", "data", f"{self.data.dtype} of {self.data.ndim} axes", "a uint8 array")
        if self.data.shape[-1] % self.format.block_bytes:
            raise BadInput(
                "Packed",
                "data",
                f"rows of {self.data.shape[-1]} bytes",
                f"whole {self.format.name} blocks of {self.format.block_bytes} bytes",
            )
        if not isinstance(self.scale, np.float32):
            raise BadInput("Packed", "scale", type(self.scale).__name__, "a numpy float32")

    @property
    def shape(self) -> tuple[int, ...]:
        num_blocks = self.data.shape[-1] // self.format.block_bytes
        return (*self.data.shape[:-1], num_blocks * self.format.block_len)

    @property
    def ndim(self) -> int:
        return self.data.ndim

    def __getitem__(self, index: Any) -> Packed:
        """A view by whole rows: the index must leave the last axis alone."""
        return Packed(self.format, self.data[index], self.scale)

    def unpack(self) -> np.ndarray:
        """float32 [..., n], freshly allocated."""
        return self.format.decode(self.data, self.scale)

    def codes(self) -> Codes:
        return self.format.codes(self.data, self.scale)


HostTensor = np.ndarray | Packed


@cache
def _name_of(dtype: np.dtype) -> str:
    for fmt in FORMATS:
        if fmt.dtype is not None and fmt.dtype == dtype:  # numpy holds float64 equal to None
            return fmt.name
    return str(dtype)


def dtype_name(x: np.ndarray) -> str:
    """The name of the plain format with this dtype, or of the dtype itself where we have no format for it."""
    return _name_of(x.dtype)


def format_of(x: HostTensor) -> Format:
    """The format of a host tensor; BadInput for a dtype we have no format for."""
    if isinstance(x, Packed):
        return x.format
    name = dtype_name(x)
    if name not in FORMATS:
        raise BadInput("tensor", "dtype", name, f"one of {', '.join(f.name for f in FORMATS if f.dtype)}")
    return FORMATS[name]


def store(target: HostTensor | None, result: HostTensor) -> HostTensor:
    """The result in the memory that was bound for it, or as it is where none was."""
    if target is None or target is result:
        return result
    if isinstance(target, Packed) and isinstance(result, Packed):
        target.data[...] = result.data
    elif isinstance(target, np.ndarray) and isinstance(result, np.ndarray):
        target[...] = result
    return target


def copy_tensor(x: HostTensor) -> HostTensor:
    """The same tensor in memory of its own."""
    return Packed(x.format, x.data.copy(), x.scale) if isinstance(x, Packed) else x.copy()
