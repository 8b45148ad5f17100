"""Weights from a checkpoint into device memory: read, rearranged as the graph asks, uploaded, in parallel."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import prod

import numpy as np

from samebits.backends.interface import Backend, Buffer
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.rounding import are_operands
from samebits.core.numerics.settling import settled
from samebits.core.shapes import TensorSpec, joined_axis, upper
from samebits.models.checkpoint import Checkpoint

Packer = Callable[[HostTensor], HostTensor]
Progress = Callable[[int, int], None]  # (tensors done, tensors in all)


def load_weight(
    checkpoint: Checkpoint, name: str, spec: TensorSpec, joined: Mapping[str, tuple[str, ...]]
) -> HostTensor:
    """One graph input, settled: a tensor of the checkpoint, the rows of several one after another, or a rotary table.

    BadInput for a value that no op could compute with: NaN, Inf, one beyond 2^63 in bfloat16, a scale beyond its range.
    """
    if name in joined:
        return _joined((load_weight(checkpoint, part, spec, {}) for part in joined[name]), spec)
    if name in checkpoint.config.ropes:
        return checkpoint.config.ropes[name].table(upper(spec.shape[0]), checkpoint.tensor)
    tensor = checkpoint.tensor(name)
    if isinstance(tensor, Packed):
        tensor.format.check(tensor.data, "model", name)
        return tensor
    if not are_operands(tensor):
        raise BadInput("model", name, "NaN, Inf or a value beyond the type's range", f"finite {tensor.dtype} values")
    return settled(tensor)


def _joined(parts: Iterator[HostTensor], spec: TensorSpec) -> HostTensor:
    """One after another along the axis in which they are shorter than `spec`: rows, or rows of every expert.

    A part is let go before the next is made.
    """
    part = next(parts)
    axis = joined_axis(spec.shape, part.shape)
    data, start = _data(part), part.shape[axis]
    out = _own_pages((*data.shape[:axis], upper(spec.shape[axis]), *data.shape[axis + 1 :]), data.dtype)
    before = (slice(None),) * axis
    out[*before, :start] = data
    whole = Packed(part.format, out, part.scale) if isinstance(part, Packed) else out
    del part, data
    for data in map(_data, parts):
        out[*before, start : start + data.shape[axis]] = data
        start += data.shape[axis]
        del data
    return whole


def _data(tensor: HostTensor) -> np.ndarray:
    return tensor.data if isinstance(tensor, Packed) else tensor


def _own_pages(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Pages that go back at once: an allocator would keep some for each thread."""
    return np.ndarray(shape, dtype, mmap.mmap(-1, max(1, prod(shape) * dtype.itemsize)))


def upload(
    backend: Backend,
    checkpoint: Checkpoint,
    specs: Mapping[str, TensorSpec],
    joined: Mapping[str, tuple[str, ...]],
    packers: Mapping[str, Packer],
    progress: Progress | None = None,
) -> dict[str, Buffer]:
    """Buffers of all weights named in `specs`, rotary tables among them, packed as their kernels ask."""
    buffers: dict[str, Buffer] = {}
    tables = checkpoint.config.ropes

    def release(name: str) -> None:
        for part in joined.get(name, (name,)):
            if part not in tables:
                checkpoint.release(part)

    def one(name: str) -> tuple[str, Buffer]:
        spec = specs[name]
        host = load_weight(checkpoint, name, spec, joined)
        if name in packers:
            buffer = backend.adopt_packed(packers[name], host)
        else:
            buffer = backend.alloc(spec)
            backend.copy_in(buffer, host)
        release(name)
        return name, buffer

    own = [name for name in specs if name in tables]  # of this thread, whose allocator gives back what it used
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(one, name) for name in specs if name not in own]
        buffers.update(map(one, own))
        for i, future in enumerate(as_completed(futures), len(own)):
            name, buffers[name] = future.result()
            if progress:
                progress(i + 1, len(specs))
    for name in specs:
        release(name)  # again: reading a tensor maps pages around it too
    return buffers
