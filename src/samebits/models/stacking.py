"""Stacks of matrices. Experts are read one by one, so that beside the stack there is never more than one of them."""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.loaders.source import TensorEntry, TensorSource
from samebits.models.architecture import Stored


def stacked(file: TensorSource, stored: Stored, entries: tuple[TensorEntry, ...]) -> HostTensor:
    """All experts along the first axis, in memory of their own; `entries` are the file's tensors that hold them.

    BadInput where experts that lie apart have scales of their own for a whole tensor: a stack has one.
    """
    part = _expert(file, stored, entries, 0)
    out = _room(part, stored.shape[0])
    _put(out, 0, part)
    for number in range(1, stored.shape[0]):
        del part  # before the next is read
        part = _expert(file, stored, entries, number)
        if isinstance(part, Packed) and isinstance(out, Packed) and part.scale != out.scale:
            entry = entries[number]
            needed = f"{out.scale:g}, that of {entries[0].name}: stacked experts have one scale"
            raise BadInput(entry.file, f"tensor {entry.name}", f"a scale of {part.scale:g}", needed)
        _put(out, number, part)
    return out


def _expert(file: TensorSource, stored: Stored, entries: tuple[TensorEntry, ...], number: int) -> HostTensor:
    """What the stack has at a number: a matrix [out, in], or a vector."""
    part = file.read(entries[number].name) if stored.is_apart else file.read_at(entries[0].name, number)
    if stored.is_swapped and isinstance(part, np.ndarray):
        part = part.T
    return part if stored.rows is None else part[stored.rows.index()]


def _room(part: HostTensor, num_parts: int) -> HostTensor:
    if isinstance(part, Packed):
        return Packed(part.format, np.empty((num_parts, *part.data.shape), np.uint8), part.scale)
    return np.empty((num_parts, *part.shape), part.dtype)


def _put(out: HostTensor, number: int, part: HostTensor) -> None:
    if isinstance(out, Packed) and isinstance(part, Packed):
        out.data[number] = part.data
    elif isinstance(out, np.ndarray) and isinstance(part, np.ndarray):
        out[number] = part


def shaped(tensor: HostTensor, stored: Stored) -> HostTensor:
    """The file's rows as the stack of matrices that the model has, where it has one."""
    if len(stored.shape) != 3 or tensor.shape == stored.shape:
        return tensor
    if stored.is_transposed:
        num_matrices, num_columns, num_rows = stored.shape
        plain = tensor.unpack() if isinstance(tensor, Packed) else tensor
        return np.ascontiguousarray(plain.reshape(num_matrices, num_rows, num_columns).swapaxes(1, 2))
    if isinstance(tensor, Packed):
        return Packed(tensor.format, tensor.data.reshape(*stored.shape[:-1], -1), tensor.scale)
    return tensor.reshape(stored.shape)
