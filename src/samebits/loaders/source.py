"""What a file of weights offers before anyone knows the model: tensors by the file's own names."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, HostTensor
from samebits.loaders.limits import MAX_JSON_ITEMS


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a file. `format` is ours where `is_supported`, else the file's own name for it."""

    name: str
    shape: tuple[int, ...]
    format: str
    num_bytes: int
    is_supported: bool
    file: str

    @property
    def is_block(self) -> bool:
        """Whether it is in a block format of ours."""
        return self.is_supported and FORMATS[self.format].is_block


class TensorSource(Protocol):
    """Tensors by the file's own names."""

    @property
    def path(self) -> Path: ...

    @property
    def tensors(self) -> dict[str, TensorEntry]: ...

    def read(self, name: str) -> HostTensor:
        """The tensor; BadInput when it is not there or in a format that is not ours."""
        ...

    def read_at(self, name: str, index: int) -> HostTensor:
        """What the tensor has at an index of its first axis; `read` of everything would take more memory."""
        ...

    def release(self, name: str) -> None:
        """Gives back the memory that reading the tensor's part of the file took; it can be read again."""
        ...


def entry_of(source: TensorSource, name: str) -> TensorEntry:
    """The entry, ready to be read; BadInput when it is missing or its format is not ours."""
    entry = source.tensors.get(name)
    if entry is None:
        raise BadInput(str(source.path), f"tensor {name}", "nothing", "a tensor of that name")
    if not entry.is_supported:
        needed = "f32, f16, bf16 or a GGUF format q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k mxfp4"
        raise BadInput(entry.file, f"tensor {name}", f"format {entry.format}", needed)
    return entry


def open_regular(path: Path) -> int:
    """The size of a regular file; BadInput for anything else."""
    try:
        if not path.exists():
            raise BadInput(str(path), "file", "nothing", "a file that exists")
        if not path.is_file():
            raise BadInput(str(path), "file", "a folder or device", "a regular file")
        return path.stat().st_size
    except OSError as error:
        raise BadInput(str(path), "file", error.strerror or error, "a readable file") from None


def read_bounded(path: Path, limit: int) -> bytes:
    """The whole of a small file; BadInput when it is larger than `limit` bytes."""
    if (size := open_regular(path)) > limit:
        raise BadInput(str(path), "size", f"{size} bytes", f"at most {limit}")
    try:
        with path.open("rb") as stream:
            return stream.read(limit)
    except OSError as error:
        raise BadInput(str(path), "file", error.strerror or error, "a readable file") from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _infinity(text: str) -> float:
    return math.inf if text == "Infinity" else _refuse_constant(text)


def _only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; readers differ in which value they take for a key that comes twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object with the same key twice")
    return found


def read_json(path: Path, limit: int, may_be_infinite: bool = False) -> dict[str, Any]:
    """A JSON object from a small file."""
    return parse_json(read_bounded(path, limit), str(path), may_be_infinite)


def parse_json(data: bytes, where: str, may_be_infinite: bool = False) -> dict[str, Any]:
    """A JSON object; `where` names its file. BadInput also for keys that repeat and for too many things.

    may_be_infinite   Infinity is a number, as Python writes it into configurations
    """
    num_items = sum(map(data.count, (b",", b"[", b"{")))  # at least
    if num_items > MAX_JSON_ITEMS:
        raise BadInput(where, "JSON", f"about {num_items} items", f"at most {MAX_JSON_ITEMS}")
    try:
        value = json.loads(
            data, parse_constant=_infinity if may_be_infinite else _refuse_constant, object_pairs_hook=_only_once
        )
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else f"invalid: {error}"
        text = ascii(reason)[1:-1]
        raise BadInput(where, "JSON", text[:200], "a valid document") from None
    if not isinstance(value, dict):
        raise BadInput(where, "JSON", type(value).__name__, "an object")
    return value
