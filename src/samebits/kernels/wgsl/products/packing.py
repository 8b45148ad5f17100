"""Weights [N, K] as shaders read them: textures of four 32-bit words a texel, 16 rows side by side.

A row is a line of texels, its columns; texel c of row r of group g of 16 rows is at x = 16 (c mod 512) + r,
y = (c / 512) * groups + g. So neighbouring invocations read neighbouring texels, and no axis is beyond 8192, which
every device grants. N is filled up with zeros to whole groups.

f32             4 elements a texel
f16, bf16       8 elements a texel
block formats   the head of 4 or 8 blocks, then the codes of each: see block_parts.py; the last stretch ends with the
                last block
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from samebits.core.format import BLOCK, HostTensor, Packed, format_of
from samebits.kernels.wgsl.lib.packing import CHUNK_BYTES, PackedWeight
from samebits.kernels.wgsl.products.block_parts import PARTS

GROUP_ROWS = 16
MAX_COLUMNS = 512  # side by side; more follow below
MAX_HEIGHT = 8192
SLAB_ROWS = 1024  # rearranged at once, so that it stays in the cache
TEXEL_BYTES = 16


def stretch_texels(format_name: str) -> int:
    """Columns of a head and of the codes of all blocks that share it."""
    parts = PARTS[format_name]
    return parts.head + parts.blocks * parts.codes


def stretch_consts(format_name: str) -> dict[str, int]:
    """The same for shaders."""
    return {"STRETCH": PARTS[format_name].blocks, "STRETCH_TEXELS": stretch_texels(format_name)}


def num_columns(format_name: str, k: int) -> int:
    """Columns of a row of K elements."""
    if format_name not in PARTS:
        return -(-k * {"f32": 4, "f16": 2, "bf16": 2}[format_name] // TEXEL_BYTES)
    parts = PARTS[format_name]
    full, rest = divmod(-(-k // BLOCK), parts.blocks)
    return full * stretch_texels(format_name) + (parts.head + rest * parts.codes if rest else 0)


def pack(weight: HostTensor) -> PackedWeight:
    """A weight [N, K] in any format that kernels of this folder take."""
    name = format_of(weight).name
    num_rows, k = weight.shape
    columns = num_columns(name, k)
    slabs = max(1, -(-columns // MAX_COLUMNS))
    group_bytes = max(1, slabs * min(columns, MAX_COLUMNS)) * GROUP_ROWS * TEXEL_BYTES
    chunk_rows = GROUP_ROWS * max(1, min(CHUNK_BYTES // group_bytes, MAX_HEIGHT // slabs))
    texels = _block_texels if isinstance(weight, Packed) else _dense_texels
    chunks = tuple(
        (first, min(chunk_rows, num_rows - first), _chunk(weight[first : first + chunk_rows], columns, texels))
        for first in range(0, num_rows, chunk_rows)
    )
    scale = float(weight.scale) if isinstance(weight, Packed) else 1.0
    return PackedWeight(name, weight.shape, chunks, scale)


def _chunk(rows: HostTensor, columns: int, texels: Callable[[HostTensor, int], np.ndarray]) -> np.ndarray:
    """uint32 [height, width, 4] of some rows."""
    groups = -(-rows.shape[0] // GROUP_ROWS)
    slabs = max(1, -(-columns // MAX_COLUMNS))
    width = min(columns, MAX_COLUMNS)
    placed = np.zeros((slabs, groups, width, GROUP_ROWS, 4), np.uint32)
    for first in range(0, rows.shape[0], SLAB_ROWS):
        part = texels(rows[first : first + SLAB_ROWS], columns)
        whole = np.zeros((-(-len(part) // GROUP_ROWS) * GROUP_ROWS, columns, 4), np.uint32)
        whole[: len(part)] = part
        grouped = whole.reshape(-1, GROUP_ROWS, columns, 4).swapaxes(1, 2)
        at = first // GROUP_ROWS
        for slab in range(slabs):
            piece = grouped[:, slab * MAX_COLUMNS : (slab + 1) * MAX_COLUMNS]
            placed[slab, at : at + len(piece), : piece.shape[1]] = piece
    return placed.reshape(slabs * groups, width * GROUP_ROWS, 4)


def _dense_texels(rows: HostTensor, columns: int) -> np.ndarray:
    """uint32 [rows, columns, 4] of plain rows."""
    plain = np.ascontiguousarray(rows)
    stored = np.zeros((len(plain), columns * TEXEL_BYTES), np.uint8)
    data = plain.view(np.uint8).reshape(len(plain), -1)
    stored[:, : data.shape[1]] = data
    return stored.view(np.uint32).reshape(len(plain), columns, 4)


def _block_texels(rows: HostTensor, columns: int) -> np.ndarray:
    """uint32 [rows, columns, 4] of rows in a block format."""
    if not isinstance(rows, Packed):
        raise TypeError("rows in a block format are Packed")
    parts = PARTS[rows.format.name]
    raw = np.ascontiguousarray(rows.data).reshape(len(rows.data), -1, rows.format.block_bytes)
    head, codes = parts.split(raw)  # [rows, heads, head, 4], [rows, blocks, codes, 4]
    num_rows, num_heads = head.shape[:2]
    whole = np.zeros((num_rows, num_heads, stretch_texels(rows.format.name), 4), np.uint32)
    whole[:, :, : parts.head] = head
    padded = np.zeros((num_rows, num_heads * parts.blocks, parts.codes, 4), np.uint32)
    padded[:, : codes.shape[1]] = codes
    whole[:, :, parts.head :] = padded.reshape(num_rows, num_heads, -1, 4)
    return whole.reshape(num_rows, -1, 4)[:, :columns]
