"""Device memory of the WebGPU backend, and the way between it and host tensors.

Plain formats lie as numpy has them, in whole words. Caches in block formats lie in two planes, all codes, then a
float32 scale for every block, so that no two invocations write to one word. Other block formats are bytes that only
packing reads.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.backends.webgpu.device import Gpu
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed, spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.kernels.wgsl.lib.compose import code_words
from samebits.kernels.wgsl.lib.launch import Chunk, Operand, Weight

IN_PLANES = ("q8_0", "q4_0")
SCALE_BYTES = 2  # a float16 before the codes of both


class WebGpuBuffer(Buffer):
    """`memory` is a wgpu buffer; elements start `first` elements into it."""

    def __init__(self, spec: TensorSpec, memory: Any) -> None:
        self.spec, self.memory = spec, memory
        self.scale = np.float32(1)  # of a tensor in a block format that has one


class WeightBuffer(Buffer):
    """A weight that a kernel's `prepack` rearranged."""

    def __init__(self, spec: TensorSpec, weight: Weight) -> None:
        self.spec, self.weight = spec, weight


def num_blocks(spec: TensorSpec) -> int:
    """Blocks of a tensor in a block format, symbols at their upper bound."""
    return spec.num_elements // FORMATS[spec.format].block_len


def stored_bytes(spec: TensorSpec) -> int:
    """Bytes of a tensor on the device."""
    if spec.format in IN_PLANES:
        return num_blocks(spec) * 4 * (code_words(spec.format) + 1)
    return spec_bytes(spec)


def to_stored(host: HostTensor) -> np.ndarray:
    """uint8 [multiple of 4]: a host tensor as the device holds it."""
    if isinstance(host, Packed) and host.format.name in IN_PLANES:
        blocks = np.ascontiguousarray(host.data).reshape(-1, host.format.block_bytes)
        scales = np.ascontiguousarray(blocks[:, :SCALE_BYTES]).view(np.float16).astype(np.float32)
        return np.concatenate([blocks[:, SCALE_BYTES:].reshape(-1), scales.reshape(-1).view(np.uint8)])
    array = host.data if isinstance(host, Packed) else host
    stored = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.pad(stored, (0, -len(stored) % 4))


def from_stored(spec: TensorSpec, stored: np.ndarray, scale: np.float32) -> HostTensor:
    """The host tensor of a spec from the device's bytes; a view of them where it can be."""
    shape, fmt = spec.upper_shape, FORMATS[spec.format]
    if not isinstance(fmt, BlockFormat):
        return stored[: spec_bytes(spec)].view(fmt.dtype or np.uint8).reshape(shape)
    row_shape = (*shape[:-1], fmt.row_bytes(shape[-1]))
    if spec.format not in IN_PLANES:
        return Packed(fmt, stored[: prod(row_shape)].reshape(row_shape), scale)
    count = num_blocks(spec)
    code_bytes = 4 * code_words(spec.format)
    codes = stored[: count * code_bytes].reshape(count, code_bytes)
    scales = stored[count * code_bytes :][: count * 4].view(np.float32).astype(np.float16)
    blocks = np.concatenate([scales.reshape(count, 1).view(np.uint8), codes], axis=1)
    return Packed(fmt, blocks.reshape(row_shape), scale)


def write(gpu: Gpu, buffer: WebGpuBuffer, host: HostTensor) -> None:
    """Host to device."""
    if isinstance(host, Packed):
        buffer.scale = host.scale
    stored = to_stored(host)
    if len(stored):
        gpu.queue.write_buffer(buffer.memory, 0, stored)


def read(gpu: Gpu, buffer: WebGpuBuffer) -> HostTensor:
    """Device to a fresh host tensor; waits."""
    size = -(-stored_bytes(buffer.spec) // 4) * 4
    data = gpu.queue.read_buffer(buffer.memory, 0, size) if size else b""
    return from_stored(buffer.spec, np.frombuffer(bytearray(data), np.uint8), buffer.scale)


def base_of(buffer: Buffer | View) -> WebGpuBuffer | WeightBuffer:
    """The buffer of this backend under a buffer or a view of one."""
    base = buffer.base if isinstance(buffer, View) else buffer
    if not isinstance(base, WebGpuBuffer | WeightBuffer):
        raise BadInput("webgpu", "buffer", type(base).__name__, "a buffer of this backend")
    return base


def operand(buffer: WebGpuBuffer, shape: tuple[int, ...], first_row: int = 0) -> Operand:
    """Rows of a buffer from `first_row` on, as a kernel sees them."""
    row = prod(shape[1:]) if shape else 1
    in_planes = buffer.spec.format in IN_PLANES
    count = num_blocks(buffer.spec) if in_planes else 0
    return Operand(buffer.spec.format, shape, buffer.memory, first_row * row, row, count)


def first_row_of(view: View) -> int | None:
    """Where a view starts that is nothing but a range of rows of its base; None for any other."""
    first = 0
    for step in view.steps:
        if step[0] != "slice" or step[1] != 0:
            return None
        first += step[2]
    return first


def is_reached_in_place(view: View) -> bool:
    """Whether a view is a range of rows that begins where a word does: shaders write whole words."""
    first, fmt = first_row_of(view), FORMATS[view.spec.format]
    if first is None or isinstance(fmt, BlockFormat):
        return first is not None
    return first * fmt.row_bytes(prod(view.spec.upper_shape[1:])) % 4 == 0


def uploaded(gpu: Gpu, spec: TensorSpec, chunks: list[tuple[int, int, np.ndarray]], scale: float) -> WeightBuffer:
    """A packed weight on the device: (first row, rows, uint32 words) of each chunk."""
    made = []
    for first_row, rows, words in chunks:
        memory = gpu.buffer(words.nbytes)
        gpu.queue.write_buffer(memory, 0, words)
        made.append(Chunk(first_row, rows, memory))
    return WeightBuffer(spec, Weight(spec.format, spec.upper_shape, tuple(made), scale))
