"""A new GGUF file: tensor by tensor, under its name only when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from samebits.convert.encoders import encode
from samebits.convert.gguf_bytes import OutTensor, aligned, header
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, HostTensor, Packed, format_of

SLICE_ELEMENTS = 1 << 22  # that are float32 at once
Report = Callable[[str, int, int], None]  # a tensor's name, bytes written so far, bytes in all


@dataclass(frozen=True)
class OutFile:
    """What a file will hold: metadata as bytes by key, tensors, what reads one of them, and what gives back the memory
    that reading took."""

    metadata: Mapping[str, bytes]
    tensors: Sequence[OutTensor]
    read: Callable[[str], HostTensor]
    release: Callable[[str], None] = lambda name: None

    @property
    def num_bytes(self) -> int:
        """Of the tensors."""
        return sum(aligned(tensor.num_bytes) for tensor in self.tensors)


def write(out: OutFile, path: Path, report: Report, may_replace: bool = False) -> None:
    """Writes the file. BadInput where it exists and may not be replaced, for no room, and for what has no code.

    Beside a tensor as its file stores it, there are never more than some megabytes in memory.
    """
    if path.exists() and not may_replace:
        raise BadInput(str(path), "output", "a file that exists", "a new name; --force overwrites it")
    if not path.parent.is_dir():
        raise BadInput(str(path), "output", "no such folder", "a name in a folder that exists")
    if (free := shutil.disk_usage(path.parent).free) < out.num_bytes:
        raise BadInput(str(path), "output", f"on a disk with {free} bytes free", f"on one with {out.num_bytes}")
    new = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with new.open("wb") as stream:
            _write(out, stream, report)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _write(out: OutFile, stream: IO[bytes], report: Report) -> None:
    stream.write(header(out.metadata, out.tensors))
    done, total = 0, out.num_bytes
    for tensor in out.tensors:
        report(tensor.name, done, total)
        source = out.read(tensor.name)
        if source.shape != tensor.shape:
            raise BadInput(tensor.name, "tensor", f"shape {source.shape}", f"shape {tensor.shape}")
        rows = _rows(source)
        step = max(1, SLICE_ELEMENTS // tensor.shape[-1])
        for start in range(0, rows.shape[0], step):
            data = recoded(rows[start : start + step], tensor.format, tensor.name)
            stream.write(data)
            done += len(data)
            report(tensor.name, done, total)
        del source, rows
        out.release(tensor.name)
        stream.write(bytes(aligned(tensor.num_bytes) - tensor.num_bytes))
        done += aligned(tensor.num_bytes) - tensor.num_bytes


def _rows(tensor: HostTensor) -> HostTensor:
    """[rows, elements], whatever the number of axes."""
    if isinstance(tensor, Packed):
        return Packed(tensor.format, tensor.data.reshape(-1, tensor.data.shape[-1]), tensor.scale)
    return tensor.reshape(-1, tensor.shape[-1])


def recoded(rows: HostTensor, name: str, where: str) -> bytes:
    """Rows in another format, or as they are in their own; BadInput for NaN, Inf or what the format cannot hold."""
    if isinstance(rows, Packed) and format_of(rows).name == name and rows.scale == 1:
        return rows.data.tobytes()
    if not isinstance(rows, Packed) and format_of(rows).name == name and np.isfinite(rows).all():
        return rows.tobytes()
    numbers = rows.unpack() if isinstance(rows, Packed) else rows.astype(np.float32)
    fmt = FORMATS[name]
    if not np.isfinite(numbers).all():
        raise BadInput(where, "tensor", "NaN or Inf", "finite values")
    if fmt.is_block:
        return encode(numbers, name).tobytes()
    with np.errstate(over="ignore"):
        plain = numbers.astype(fmt.dtype)
    if not np.isfinite(plain.astype(np.float32)).all():
        raise BadInput(where, "tensor", f"{np.abs(numbers).max():g}", f"values that {name} holds")
    return plain.tobytes()
