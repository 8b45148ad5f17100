"""Device memory: tiles of 32 x 32 elements, reached by row numbers, never by address.

A tensor of any rank is a matrix here: all axes but the last make its rows, and a vector is one column. An element
of a block format is one whole block, so that tiling never cuts one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.core.shapes import TensorSpec, upper
from samebits.ops.evaluate import spec_of

TILE = 32


def rows_in(shape: tuple[int, ...]) -> int:
    return math.prod(shape[:-1] or shape)


class TileBuffer(Buffer):
    """A tensor as a grid of tiles. Nothing outside this class knows where an element lies."""

    def __init__(self, spec: TensorSpec) -> None:
        fmt, shape = FORMATS[spec.format], tuple(upper(d) for d in spec.shape)
        if fmt.is_block and len(shape) < 2:
            raise BadInput("toy", "alloc", spec, "a packed tensor of two axes or more")
        self.spec, self.shape = spec, shape
        self.scale = np.float32(1)
        self.width = shape[-1] // fmt.block_len if len(shape) > 1 else 1
        self.dtype = fmt.dtype or np.dtype((np.void, fmt.block_bytes))
        self._tile_width = min(TILE, max(self.width, 1))
        grid = (-(-rows_in(shape) // TILE), -(-self.width // self._tile_width))
        self._tiles = np.zeros((*grid, TILE, self._tile_width), self.dtype)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """These rows, in this order, as they are stored: [len(rows), width]."""
        found = self._tiles[rows // TILE, :, rows % TILE]
        return np.ascontiguousarray(found.reshape(len(rows), self._padded_width)[:, : self.width])

    def scatter(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Stores values [len(rows), width] in these rows; no row may appear twice."""
        padded = np.zeros((len(rows), self._padded_width), self.dtype)
        padded[:, : self.width] = values
        self._tiles[rows // TILE, :, rows % TILE] = padded.reshape(len(rows), *self._tiles.shape[1::2])

    @property
    def _padded_width(self) -> int:
        return self._tiles.shape[1] * self._tile_width


@dataclass(frozen=True)
class Window:
    """Consecutive rows of a buffer: what kernels take. It writes through to the buffer."""

    buffer: TileBuffer
    first: int
    shape: tuple[int, ...]

    @property
    def format(self) -> str:
        return self.buffer.spec.format

    @property
    def num_rows(self) -> int:
        return rows_in(self.shape)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self.buffer.gather(self.first + rows)

    def scatter(self, rows: np.ndarray, values: np.ndarray) -> None:
        self.buffer.scatter(self.first + rows, values)

    def vector(self) -> np.ndarray:
        """All elements of a vector, in order: a norm's weight, or indices for the controller."""
        return self.gather(np.arange(self.num_rows)).reshape(-1)


def window_of(memory: Buffer | View) -> Window | None:
    """The rows that a buffer or view stands for; None where the view is more than slices of the first axis."""
    base = memory.base if isinstance(memory, View) else memory
    if not isinstance(base, TileBuffer):
        raise BadInput("toy", "buffer", type(base).__name__, "a buffer of this backend")
    first, shape = 0, base.shape
    for kind, *arguments in memory.steps if isinstance(memory, View) else ():
        if kind != "slice" or arguments[0] != 0:
            return None
        _, start, stop = arguments
        first += start * rows_in((1, *shape[1:]))
        shape = (stop - start, *shape[1:])
    return Window(base, first, shape)


def upload(buffer: TileBuffer, host: HostTensor) -> None:
    """Tiles a host tensor of the buffer's spec."""
    if spec_of(host) != TensorSpec(buffer.shape, buffer.spec.format):
        raise BadInput("copy_in", "host", spec_of(host), str(buffer.spec))
    stored = host.data if isinstance(host, Packed) else host
    buffer.scale = host.scale if isinstance(host, Packed) else np.float32(1)
    num_rows = rows_in(buffer.shape)
    buffer.scatter(np.arange(num_rows), np.ascontiguousarray(stored).view(buffer.dtype).reshape(num_rows, buffer.width))


def download(buffer: TileBuffer) -> HostTensor:
    """A fresh host tensor with the buffer's contents."""
    rows, fmt = buffer.gather(np.arange(rows_in(buffer.shape))), FORMATS[buffer.spec.format]
    if isinstance(fmt, BlockFormat):
        row_bytes = fmt.row_bytes(buffer.shape[-1])
        return Packed(fmt, rows.view(np.uint8).reshape(*buffer.shape[:-1], row_bytes), buffer.scale)
    return rows.reshape(buffer.shape)
