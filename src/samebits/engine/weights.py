"""Weights from a checkpoint into device memory: read, rearranged as the graph asks, uploaded, in parallel."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
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

    BadInput for a value that no op could compute with: NaN, Inf, or one beyond 2^63 in bfloat16.
    """
    if name in joined:
        parts = [load_weight(checkpoint, part, spec, {}) for part in joined[name]]
        return _concatenated(parts, joined_axis(spec.shape, parts[0].shape))
    if name in checkpoint.config.ropes:
        return checkpoint.config.ropes[name].table(upper(spec.shape[0]), checkpoint.tensor)
    tensor = checkpoint.tensor(name)
    if isinstance(tensor, Packed):
        return tensor
    if not are_operands(tensor):
        raise BadInput("model", name, "NaN, Inf or a value beyond the type's range", f"finite {tensor.dtype} values")
    return settled(tensor)


def _concatenated(parts: list[HostTensor], axis: int) -> HostTensor:
    first = parts[0]
    if isinstance(first, Packed):
        return Packed(first.format, _stacked([p.data for p in parts if isinstance(p, Packed)], axis), first.scale)
    return _stacked([p for p in parts if not isinstance(p, Packed)], axis)


def _stacked(arrays: list[np.ndarray], axis: int) -> np.ndarray:
    """One after another, in pages of their own that go back at once: an allocator would keep some for each thread."""
    shape = list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)
    pages = mmap.mmap(-1, max(1, prod(shape) * arrays[0].itemsize))
    return np.concatenate(arrays, axis=axis, out=np.ndarray(shape, arrays[0].dtype, pages))


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
