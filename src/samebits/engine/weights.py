"""Weights from a checkpoint into device memory: read, rearranged as the graph asks, uploaded, in parallel."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from math import prod

import numpy as np

from samebits.backends.interface import Backend, Buffer
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed, format_of
from samebits.core.numerics.rounding import are_operands
from samebits.core.numerics.settling import settle, settled
from samebits.core.protocols import Checkpoint, Hyperparameters
from samebits.core.shapes import TensorSpec, upper
from samebits.models.parts import ROPE_TABLE
from samebits.ops.rope import rope_table

Packer = Callable[[HostTensor], HostTensor]
Progress = Callable[[int, int], None]  # (tensors done, tensors in all)


def make_rope_table(checkpoint: Checkpoint, num_positions: int) -> np.ndarray:
    """The rotary table of a model; BadInput for a scaling we have no definition of."""
    hp: Hyperparameters = checkpoint.hyperparameters
    scaling = hp.rope_scaling
    table = partial(rope_table, num_positions, hp.rotary_dims, theta=hp.rope_theta)
    if scaling.kind == "none":
        return table()
    if scaling.kind == "linear":
        return table(scaling="linear", factor=scaling.factor)
    if scaling.kind == "factors":
        divisors = checkpoint.tensor("rope_freqs")
        if isinstance(divisors, Packed):
            raise BadInput("model", "rope_freqs", divisors.format.name, "a plain tensor")
        return table(divisors=divisors)
    if scaling.kind == "llama3":
        return table(
            scaling="llama31",
            factor=scaling.factor,
            low=scaling.low_freq_factor,
            high=scaling.high_freq_factor,
            old_context_len=scaling.original_context_len,
        )
    raise BadInput("model", "rope scaling", scaling.kind, "none, linear, llama3 or factors")


def is_norm(name: str) -> bool:
    return name.rsplit(".", 1)[-1].endswith("norm")


def load_weight(checkpoint: Checkpoint, name: str, joined: Mapping[str, tuple[str, ...]]) -> HostTensor:
    """One graph input, settled: a tensor of the checkpoint, or the rows of several one after another.

    BadInput for a value that no op could compute with: NaN, Inf, or one beyond 2^63 in bfloat16.
    """
    if name in joined:
        return _concatenated([load_weight(checkpoint, part, {}) for part in joined[name]])
    tensor = checkpoint.tensor(name)
    offset = checkpoint.hyperparameters.norm_weight_offset
    if isinstance(tensor, Packed):
        return tensor
    if not are_operands(tensor):
        raise BadInput("model", name, "NaN, Inf or a value beyond the type's range", f"finite {tensor.dtype} values")
    if offset and is_norm(name):
        return settle(tensor.astype(np.float32) + np.float32(offset))
    return settled(tensor)


def _concatenated(parts: list[HostTensor]) -> HostTensor:
    first = parts[0]
    if isinstance(first, Packed):
        return Packed(first.format, _stacked([p.data for p in parts if isinstance(p, Packed)]), first.scale)
    return _stacked([p for p in parts if not isinstance(p, Packed)])


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    """One after another, in pages of their own that go back at once: an allocator would keep some for each thread."""
    shape = (sum(len(array) for array in arrays), *arrays[0].shape[1:])
    pages = mmap.mmap(-1, max(1, prod(shape) * arrays[0].itemsize))
    return np.concatenate(arrays, out=np.ndarray(shape, arrays[0].dtype, pages))


def weight_spec(checkpoint: Checkpoint) -> Callable[[str], TensorSpec | None]:
    """What a model builder asks: the spec of a weight by name, None where the checkpoint has none."""
    names = frozenset(checkpoint.names())
    has_offset = bool(checkpoint.hyperparameters.norm_weight_offset)

    def spec(name: str) -> TensorSpec | None:
        if name not in names or (name == "head" and checkpoint.hyperparameters.tie_embeddings):
            return None
        tensor = checkpoint.tensor(name)
        fmt = "f32" if has_offset and is_norm(name) else format_of(tensor).name
        return TensorSpec(tuple(tensor.shape), fmt)

    return spec


def upload(
    backend: Backend,
    checkpoint: Checkpoint,
    specs: Mapping[str, TensorSpec],
    joined: Mapping[str, tuple[str, ...]],
    packers: Mapping[str, Packer],
    progress: Progress | None = None,
) -> dict[str, Buffer]:
    """Buffers of all weights named in `specs`, the rope table among them, packed as their kernels ask."""
    buffers: dict[str, Buffer] = {}

    def release(name: str) -> None:
        for part in joined.get(name, (name,)):
            if part != ROPE_TABLE:
                checkpoint.release(part)

    def one(name: str) -> tuple[str, Buffer]:
        spec = specs[name]
        if name == ROPE_TABLE:
            host: HostTensor = make_rope_table(checkpoint, upper(spec.shape[0]))
        else:
            host = load_weight(checkpoint, name, joined)
        if name in packers:
            buffer = backend.adopt_packed(packers[name], host)
        else:
            buffer = backend.alloc(spec)
            backend.copy_in(buffer, host)
        release(name)
        return name, buffer

    own = [name for name in specs if name == ROPE_TABLE]  # of this thread, whose allocator gives back what it used
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
