"""A folder of safetensors files as Hugging Face lays it out: one file, or shards under an index."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from samebits.core.errors import BadInput, NotFound
from samebits.core.format import HostTensor
from samebits.formats import FORMATS
from samebits.loaders.source import TensorEntry, entry_of, open_regular, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 << 20
MAX_HEADER_BYTES = 64 << 20
MAX_SHARDS = 4096
MAX_TENSORS = 1 << 18
FORMAT_NAMES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


@dataclass(frozen=True)
class SafetensorsDir:
    """The tensors of a folder. Reading one copies it out of its file, which is mapped only meanwhile."""

    path: Path
    tensors: dict[str, TensorEntry] = field(default_factory=dict)

    def read(self, name: str) -> HostTensor:
        """A fresh array in the file's own format."""
        return self._array(entry_of(self, name), None)

    def read_at(self, name: str, index: int) -> HostTensor:
        """A fresh array of what the tensor has at an index of its first axis; no more of it is copied."""
        return self._array(entry_of(self, name), index)

    def _array(self, entry: TensorEntry, index: int | None) -> np.ndarray:
        name = entry.name
        try:
            with safe_open(entry.file, framework="np") as reader:
                array = reader.get_tensor(name) if index is None else reader.get_slice(name)[index]
        except (SafetensorError, OSError, ValueError, TypeError, IndexError) as error:
            raise BadInput(entry.file, f"tensor {name}", error, "a readable tensor") from None
        shape = entry.shape if index is None else entry.shape[1:]
        if array.shape != shape or array.dtype != FORMATS[entry.format].dtype:
            raise BadInput(entry.file, f"tensor {name}", "other bytes than before", "a file that does not change")
        return np.asarray(array)

    def is_scale(self, name: str) -> bool:
        """Return whether a tensor only says how others, or activations, are quantized."""
        return False

    def release(self, name: str) -> None:
        """Nothing to do: `read` gives arrays of their own."""


def open_safetensors(path: Path) -> SafetensorsDir:
    """Return the tensors of a .safetensors file, or of a folder with one or with an index of shards.

    In a folder with both the index is not read, as in transformers.
    """
    if path.is_file():
        return SafetensorsDir(path, _entries(path))
    if (path / SINGLE).is_file():
        return SafetensorsDir(path, _entries(path / SINGLE))
    if (path / INDEX).is_file():
        return SafetensorsDir(path, _sharded(path))
    message = f"no model in the folder {path.resolve()}: it has neither a GGUF file nor {SINGLE} nor {INDEX}"
    raise NotFound(str(path), "weights", message)


def _entries(path: Path) -> dict[str, TensorEntry]:
    """Every tensor of one file. The library checks its header; its size is bounded here, before it is read."""
    size = open_regular(path)
    try:
        with path.open("rb") as stream:
            header_bytes = int.from_bytes(stream.read(8), "little")
    except OSError as error:
        raise BadInput(str(path), "file", error.strerror or error, "a readable file") from None
    limit = min(MAX_HEADER_BYTES, max(size - 8, 0))
    if size < 8 or header_bytes > limit:
        raise BadInput(str(path), "header length", header_bytes, f"at most {limit}")
    entries: dict[str, TensorEntry] = {}
    try:
        with safe_open(path, framework="np") as reader:
            names = reader.keys()
            if len(names) > MAX_TENSORS:
                raise BadInput(str(path), "tensors", len(names), f"at most {MAX_TENSORS}")
            for name in names:
                part = reader.get_slice(name)
                entries[name] = _entry(path, name, tuple(part.get_shape()), str(part.get_dtype()))
    except (SafetensorError, OSError) as error:
        raise BadInput(str(path), "safetensors header", error, "a whole, valid file") from None
    return entries


def _entry(path: Path, name: str, shape: tuple[int, ...], dtype: str) -> TensorEntry:
    ours = FORMAT_NAMES.get(dtype)
    num_elements = 1
    for dim in shape:
        num_elements *= dim
    item_bytes = FORMATS[ours].block_bytes if ours else 0
    return TensorEntry(name, shape, ours or dtype.lower(), num_elements * item_bytes, ours is not None, str(path))


def _sharded(folder: Path) -> dict[str, TensorEntry]:
    """The tensors that the index names, each in the shard it names, which must lie in the folder."""
    weight_map = _weight_map(folder)
    shards = {name: _entries(folder / name) for name in shard_names(folder)}
    entries: dict[str, TensorEntry] = {}
    for tensor, name in weight_map.items():
        if tensor not in shards[name]:
            raise BadInput(
                str(folder / name), f"tensor {tensor[:80]}", "nothing", f"the tensor that {INDEX} puts there"
            )
        entries[tensor] = shards[name][tensor]
    return entries


def shard_names(folder: Path) -> list[str]:
    """The files that a folder's index names; BadInput for one that leaves the folder or is no .safetensors file."""
    index, names = folder / INDEX, sorted(set(_weight_map(folder).values()))
    if len(names) > MAX_SHARDS:
        raise BadInput(str(index), "weight_map", f"{len(names)} files", f"at most {MAX_SHARDS}")
    for name in names:
        if "\0" in name or not name.endswith(".safetensors"):
            raise BadInput(str(index), "weight_map", repr(name[:80]), "the name of a .safetensors file")
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise BadInput(str(index), "weight_map", repr(name[:80]), "a file inside the folder")
    return names


def _weight_map(folder: Path) -> dict[str, str]:
    """The file of every tensor, as the index has it."""
    index = folder / INDEX
    weight_map = read_json(index, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise BadInput(str(index), "weight_map", type(weight_map).__name__, "an object of tensor names to file names")
    return weight_map
