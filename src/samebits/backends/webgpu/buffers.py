"""Device memory of the WebGPU backend, and the way between it and host tensors.

Plain formats lie as numpy has them, in whole words. Caches in block formats lie in two planes, all codes, then a
float32 scale for every block, so that no two invocations write to one word. Other block formats are bytes that only
packing reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.backends.webgpu.device import Gpu
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed, spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.kernels.wgsl.lib.launch import Chunk, Operand, Weight
from samebits.kernels.wgsl.lib.params import code_words

IN_PLANES = ("q8_0", "q4_0")
SCALE_BYTES = 2  # a float16 before the codes of both


class WebGpuBuffer(Buffer):
    """A tensor from the start of a wgpu buffer on.

    num_blocks  of memory in planes: how many codes lie before the scales
    scale       of a tensor in a block format that has one
    """

    def __init__(self, spec: TensorSpec, memory: Any, num_blocks: int | None = None) -> None:
        self.spec, self.memory = spec, memory
        self.num_blocks = blocks_of(spec) if num_blocks is None else num_blocks
        self.scale = np.float32(1)


class WeightBuffer(Buffer):
    """A weight that a kernel's `prepack` rearranged."""

    def __init__(self, spec: TensorSpec, weight: Weight) -> None:
        self.spec, self.weight = spec, weight


def blocks_of(spec: TensorSpec) -> int:
    """Blocks of a tensor in planes, symbols at their upper bound; 0 of any other."""
    return spec.num_elements // FORMATS[spec.format].block_len if spec.format in IN_PLANES else 0


def stored_bytes(spec: TensorSpec) -> int:
    """Bytes of a tensor on the device."""
    if spec.format in IN_PLANES:
        return blocks_of(spec) * 4 * (code_words(spec.format) + 1)
    return spec_bytes(spec)


def to_stored(host: HostTensor) -> np.ndarray:
    """uint8 [multiple of 4]: a host tensor as the device holds it."""
    if isinstance(host, Packed) and host.format.name in IN_PLANES:
        blocks = np.ascontiguousarray(host.data).reshape(-1, host.format.block_bytes)
        scales = np.ascontiguousarray(blocks[:, :SCALE_BYTES]).view(np.float16).astype(np.float32)
        return np.concatenate([blocks[:, SCALE_BYTES:].reshape(-1), scales.reshape(-1).view(np.uint8)])
    array = host.data if isinstance(host, Packed) else host
    stored = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.pad(stored, (0, -len(stored) % 4)) if len(stored) % 4 else stored


def from_stored(buffer: WebGpuBuffer, stored: np.ndarray) -> HostTensor:
    """The host tensor of a buffer from the device's bytes; a view of them where it can be."""
    spec = buffer.spec
    shape, fmt = spec.upper_shape, FORMATS[spec.format]
    if not isinstance(fmt, BlockFormat):
        return stored[: spec_bytes(spec)].view(fmt.dtype or np.uint8).reshape(shape)
    row_shape = (*shape[:-1], fmt.row_bytes(shape[-1]))
    if spec.format not in IN_PLANES:
        return Packed(fmt, stored[: prod(row_shape)].reshape(row_shape), buffer.scale)
    count, code_bytes = blocks_of(spec), 4 * code_words(spec.format)
    codes = stored[: count * code_bytes].reshape(count, code_bytes)
    scales = stored[buffer.num_blocks * code_bytes :][: count * 4].view(np.float32).astype(np.float16)
    blocks = np.concatenate([scales.reshape(count, 1).view(np.uint8), codes], axis=1)
    return Packed(fmt, blocks.reshape(row_shape), buffer.scale)


def write(gpu: Gpu, buffer: WebGpuBuffer, host: HostTensor) -> None:
    """Host to device."""
    if isinstance(host, Packed):
        buffer.scale = host.scale
    gpu.write(buffer.memory, to_stored(host))


def read(gpu: Gpu, buffer: WebGpuBuffer) -> HostTensor:
    """Device to a fresh host tensor; waits."""
    end = stored_bytes(buffer.spec)
    if end and buffer.num_blocks:
        end += (buffer.num_blocks - blocks_of(buffer.spec)) * 4 * code_words(buffer.spec.format)
    return from_stored(buffer, gpu.read(buffer.memory, -(-end // 4) * 4))


def base_of(buffer: Buffer | View) -> WebGpuBuffer | WeightBuffer:
    """The buffer of this backend under a buffer or a view of one."""
    base = buffer.base if isinstance(buffer, View) else buffer
    if not isinstance(base, WebGpuBuffer | WeightBuffer):
        raise BadInput("webgpu", "buffer", type(base).__name__, "a buffer of this backend")
    return base


def plain_base(buffer: Buffer | View) -> WebGpuBuffer:
    """The same of a tensor in its own format; BadInput for a packed weight."""
    base = base_of(buffer)
    if isinstance(base, WeightBuffer):
        raise BadInput("webgpu", "buffer", "a weight rearranged for kernels", "a tensor in its own format")
    return base


def operand(buffer: WebGpuBuffer, shape: tuple[int, ...], first_row: int = 0) -> Operand:
    """Rows of a buffer from `first_row` on, as a kernel sees them."""
    row = prod(shape[1:])
    return Operand(buffer.spec.format, shape, buffer.memory, first_row * row, row, buffer.num_blocks)


def first_row_of(buffer: Buffer | View) -> int | None:
    """Where a view starts that is nothing but a range of rows of its base; None for any other."""
    first = 0
    for step in buffer.steps if isinstance(buffer, View) else ():
        if step[0] != "slice" or step[1] != 0:
            return None
        first += step[2]
    return first


def byte_range(buffer: Buffer | View) -> tuple[int, int] | None:
    """(start, size) of the rows of a buffer that lie as numpy has them, where a device can copy such a range."""
    first = first_row_of(buffer)
    if first is None or buffer.spec.format in IN_PLANES:
        return None
    size = spec_bytes(buffer.spec)
    row = spec_bytes(TensorSpec((1, *buffer.spec.shape[1:]), buffer.spec.format)) if first else 0
    return None if size % 4 or first * row % 4 else (first * row, size)


def uploaded(gpu: Gpu, spec: TensorSpec, chunks: Sequence[tuple[int, int, np.ndarray]], scale: float) -> WeightBuffer:
    """A packed weight on the device: (first row, rows, texels) of each chunk."""
    made = [Chunk(first_row, rows, gpu.texture(texels)) for first_row, rows, texels in chunks]
    return WeightBuffer(spec, Weight(spec.format, spec.upper_shape, tuple(made), scale))
