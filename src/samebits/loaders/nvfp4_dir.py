"""NVFP4 weights in a safetensors folder, as ModelOpt and compressed-tensors write them, read as our format.

A quantized layer is several tensors under one name:

  ModelOpt             weight         u8 [N, K / 2]   two elements a byte, the even one in the low nibble
                       weight_scale   e4m3 [N, K / 16]
                       weight_scale_2 f32, multiplies
  compressed-tensors   weight_packed, weight_scale, and weight_global_scale f32, divides

Scales of activations are left alone: activations are int8 blocks here. A layer without these parts stays as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import prod

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, HostTensor
from samebits.formats import NVFP4, Packed
from samebits.formats.nvfp4 import E4M3_NAN, SMALLEST_SCALE
from samebits.loaders.quantization import GROUP, MODELOPT, Nvfp4Layout
from samebits.loaders.safetensors_dir import MAX_HEADER_BYTES, SafetensorsDir
from samebits.loaders.source import TensorEntry

SCALES = ("weight_scale", "input_scale", "input_global_scale")  # of a quantized layer, beside the layout's own
CACHE_SCALES = ("k_scale", "v_scale", "q_scale", "prob_scale", "output_scale")  # of keys and values in 8 bits
LARGEST_SCALE = 2.0**115  # with which every decoded weight is finite
# Tensors beside a weight that would change what it means.
REFUSED = ("pre_quant_scale", "weight_zero_point", "weight_g_idx", "svdquant_lora_a")


@dataclass(frozen=True)
class Parts:
    """The file's own entries of a quantized layer."""

    codes: TensorEntry
    scales: TensorEntry
    scale: TensorEntry


@dataclass(frozen=True)
class Nvfp4Dir(SafetensorsDir):
    """A folder in which the parts of a quantized layer are one tensor "<layer>.weight" in our NVFP4."""

    layout: Nvfp4Layout = MODELOPT
    parts: dict[str, Parts] = field(default_factory=dict)

    def read(self, name: str) -> HostTensor:
        """A fresh tensor: packed for a quantized layer, else in the file's own format."""
        if name not in self.parts:
            return super().read(name)
        parts = self.parts[name]
        codes, scales = (_raw(entry) for entry in (parts.codes, parts.scales))
        if ((scales & E4M3_NAN) == E4M3_NAN).any():
            raise BadInput(parts.scales.file, f"tensor {parts.scales.name}", "NaN", "numbers")
        rows, num_blocks = scales.shape
        blocks = np.empty((rows, num_blocks, NVFP4.block_bytes), np.uint8)
        blocks[..., 0] = scales
        blocks[..., 1:] = codes.reshape(rows, num_blocks, GROUP // 2)
        return Packed(NVFP4, blocks.reshape(rows, -1), self._scale(parts.scale))

    def read_at(self, name: str, index: int) -> HostTensor:
        return self.read(name)[index] if name in self.parts else super().read_at(name, index)

    def is_scale(self, name: str) -> bool:
        layer, _, part = name.rpartition(".")
        return part in CACHE_SCALES or (part in (*SCALES, self.layout.scale) and f"{layer}.weight" in self.parts)

    def _scale(self, entry: TensorEntry) -> np.float32:
        value = self._array(entry, None).reshape(())
        with np.errstate(divide="ignore", over="ignore"):
            scale = np.float32(1) / value if self.layout.divides else value
        if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
            needed = f"{'1 / ' if self.layout.divides else ''}a number from {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}"
            raise BadInput(entry.file, f"tensor {entry.name}", value, needed)
        return np.float32(scale)


def join_nvfp4(file: SafetensorsDir, layout: Nvfp4Layout) -> Nvfp4Dir:
    """The folder with the parts of its quantized layers joined, their presence, types and shapes checked."""
    tensors, parts = dict(file.tensors), {}
    for name, codes in file.tensors.items():
        layer, _, part = name.rpartition(".")
        if part != layout.weight or codes.format != "u8":
            continue
        joined = f"{layer}.weight"
        parts[joined] = _parts(file, layer, codes, layout)
        rows, length = codes.shape[0], codes.shape[1] * 2
        del tensors[name]
        if joined in tensors:
            raise BadInput(codes.file, f"tensor {joined}", f"beside {name}", "only one of them")
        num_bytes = rows * NVFP4.row_bytes(length)
        tensors[joined] = TensorEntry(joined, (rows, length), NVFP4.name, num_bytes, True, codes.file)
    return Nvfp4Dir(file.path, tensors, layout, parts)


def _parts(file: SafetensorsDir, layer: str, codes: TensorEntry, layout: Nvfp4Layout) -> Parts:
    for name in REFUSED:
        if f"{layer}.{name}" in file.tensors:
            raise BadInput(codes.file, f"tensor {layer}.{name}", "a tensor", "none: such layers are not supported")
    if len(codes.shape) != 2 or codes.shape[1] * 2 % BLOCK:
        raise _wrong(codes, f"two axes, the second a multiple of {BLOCK // 2}")
    scales = _part(file, codes, f"{layer}.weight_scale", "f8_e4m3")
    if scales.shape != (codes.shape[0], codes.shape[1] * 2 // GROUP):
        raise _wrong(scales, f"shape {codes.shape[0]}x{codes.shape[1] * 2 // GROUP}")
    scale = _part(file, codes, f"{layer}.{layout.scale}", "f32")
    if scale.shape not in ((), (1,), (1, 1)):
        raise _wrong(scale, "one number")
    return Parts(codes, scales, scale)


def _part(file: SafetensorsDir, codes: TensorEntry, name: str, fmt: str) -> TensorEntry:
    entry = file.tensors.get(name)
    if entry is None:
        raise BadInput(codes.file, f"tensor {name}", "nothing", f"the {fmt} scale of {codes.name}")
    if entry.format != fmt:
        raise BadInput(entry.file, f"tensor {name}", f"format {entry.format}", fmt)
    return entry


def _wrong(entry: TensorEntry, needed: str) -> BadInput:
    return BadInput(entry.file, f"tensor {entry.name}", f"shape {'x'.join(map(str, entry.shape))}", needed)


def _raw(entry: TensorEntry) -> np.ndarray:
    """The bytes of a tensor of one-byte elements, in its shape; numpy has no e4m3 for the library to give."""
    try:
        with open(entry.file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            start, end = json.loads(stream.read(length))[entry.name]["data_offsets"]
            stream.seek(8 + length + start)
            data = stream.read(min(end - start, prod(entry.shape)))
        return np.frombuffer(data, np.uint8).reshape(entry.shape)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(
            entry.file, f"tensor {entry.name}", f"{type(error).__name__}: {error}", "a readable tensor"
        ) from None
