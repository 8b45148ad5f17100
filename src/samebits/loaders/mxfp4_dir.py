"""MXFP4 weights in a safetensors folder, as gpt-oss's files have them, read as our format.

A quantized tensor NAME [..., N, K] is two:

  NAME_blocks   u8 [..., N, K / 32, 16]   byte j of a block: element 2j in the low nibble, 2j + 1 in the high one
  NAME_scales   u8 [..., N, K / 32]       E8M0

A tensor without these parts stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.formats import MXFP4, Packed
from samebits.loaders.safetensors_dir import SafetensorsDir
from samebits.loaders.source import TensorEntry

CODES, SCALES = "_blocks", "_scales"
CODE_BYTES = MXFP4.block_bytes - 1
CHUNK_BLOCKS = 1 << 15  # rearranged at once, within the cache
LOW = np.uint64(0x0F0F0F0F0F0F0F0F)  # nibbles of eight bytes
SIXTEEN = "c16"  # any element of 16 bytes: numpy copies it as one
STORED = np.dtype([("scale", np.uint8), ("codes", SIXTEEN)])


@dataclass(frozen=True)
class Parts:
    """The file's own entries of a quantized tensor."""

    codes: TensorEntry
    scales: TensorEntry


@dataclass(frozen=True)
class Mxfp4Dir(SafetensorsDir):
    """A folder in which the two parts of a quantized tensor are one in our MXFP4."""

    parts: dict[str, Parts] = field(default_factory=dict)

    def read(self, name: str) -> HostTensor:
        """A fresh tensor: packed for a quantized one, else in the file's own format."""
        if name not in self.parts:
            return super().read(name)
        shape = self.tensors[name].shape
        out = np.empty((*shape[:-1], MXFP4.row_bytes(shape[-1])), np.uint8)
        if len(shape) < 3:
            return Packed(MXFP4, self._into(out, name, None))
        for index in range(shape[0]):
            self._into(out[index], name, index)
        return Packed(MXFP4, out)

    def read_at(self, name: str, index: int) -> HostTensor:
        if name not in self.parts:
            return super().read_at(name, index)
        shape = self.tensors[name].shape
        out = np.empty((*shape[1:-1], MXFP4.row_bytes(shape[-1])), np.uint8)
        return Packed(MXFP4, self._into(out, name, index))

    def _into(self, out: np.ndarray, name: str, index: int | None) -> np.ndarray:
        """Writes the whole tensor, or what it has at an index of its first axis, in our layout."""
        parts = self.parts[name]
        blocks = out.reshape(-1).view(STORED)
        blocks["scale"] = self._array(parts.scales, index).reshape(-1)
        codes = self._array(parts.codes, index).reshape(-1, CODE_BYTES)
        for start in range(0, len(blocks), CHUNK_BLOCKS):
            blocks["codes"][start : start + CHUNK_BLOCKS] = _ours(codes[start : start + CHUNK_BLOCKS])
        return out


def _ours(codes: np.ndarray) -> np.ndarray:
    """[blocks] of 16 bytes: uint8 [blocks, 16] of pairs of neighbours as pairs of elements that are 16 apart.

    Eight bytes at a time: elements 0 to 15 of a block are in the first word, the others in the second.
    """
    first, second = (np.ascontiguousarray(half) for half in codes.view(np.uint64).T)
    even = (first & LOW) | ((second & LOW) << np.uint64(4))
    odd = ((first >> np.uint64(4)) & LOW) | (second & ~LOW)
    pairs = even.view(np.uint8).astype("<u2") | (odd.view(np.uint8).astype("<u2") << np.uint16(8))
    return pairs.view(SIXTEEN)


def join_mxfp4(file: SafetensorsDir) -> Mxfp4Dir:
    """The folder with the parts of its quantized tensors joined, their presence, types and shapes checked."""
    tensors, parts = dict(file.tensors), {}
    for name, codes in file.tensors.items():
        if not name.endswith(CODES):
            continue
        joined = name.removesuffix(CODES)
        found = _parts(file, codes, joined + SCALES)
        if joined in tensors:
            raise BadInput(codes.file, f"tensor {joined}", f"beside {name}", "only one of them")
        parts[joined] = found
        del tensors[name], tensors[found.scales.name]
        shape = (*found.scales.shape[:-1], found.scales.shape[-1] * MXFP4.block_len)
        num_bytes = prod(found.scales.shape) * MXFP4.block_bytes
        tensors[joined] = TensorEntry(joined, shape, MXFP4.name, num_bytes, True, codes.file)
    return Mxfp4Dir(file.path, tensors, parts)


def _parts(file: SafetensorsDir, codes: TensorEntry, name: str) -> Parts:
    scales = file.tensors.get(name)
    if scales is None:
        raise BadInput(codes.file, f"tensor {name}", "nothing", f"the scales of {codes.name}")
    for entry in (codes, scales):
        if entry.format != "u8":
            raise BadInput(entry.file, f"tensor {entry.name}", f"format {entry.format}", "u8")
    if len(codes.shape) < 3 or codes.shape[-1] != CODE_BYTES or 0 in codes.shape:
        raise _wrong(codes, f"rows, blocks and {CODE_BYTES} bytes, at least one of each")
    if scales.shape != codes.shape[:-1]:
        raise _wrong(scales, f"shape {_text(codes.shape[:-1])}")
    return Parts(codes, scales)


def _wrong(entry: TensorEntry, needed: str) -> BadInput:
    return BadInput(entry.file, f"tensor {entry.name}", f"shape {_text(entry.shape)}", needed)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
