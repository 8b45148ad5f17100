"""A Hugging Face folder as a GGUF file: the architecture's table of tensors, read from one column to the other."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from samebits.convert.gguf_bytes import OutTensor, f32, header, string, u32
from samebits.convert.metadata import CONVERTED, Converted, model_metadata, rope_tensors
from samebits.convert.types import FILE_TYPES, KEPT, PLAIN
from samebits.convert.vocab import vocab_metadata
from samebits.convert.writing import OutFile
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.sampling_defaults import FALLBACK
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.source import TensorEntry
from samebits.loaders.stated_sampling import GGUF_KEYS, GGUF_PREFIX, folder_defaults
from samebits.models import ARCHITECTURES
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint, read_config
from samebits.models.parts.decoder import Decoder

# fields that a folder and its GGUF file may state differently: the prefix of names, row layout, skipped layers
STATED_ELSEWHERE = ("hf_root", "rope_is_interleaved", "num_more_layers")
FLOAT32_TOLERANCE = 1e-6  # relative, some roundings of float32
ROTATED = (".attn.q", ".attn.k", ".attn.q_bias", ".attn.k_bias")


def from_folder(source: Path) -> OutFile:
    """The model of a folder, matrices in the folder's own format, vectors in float32.

    BadInput for an architecture whose conversion is not proven, and for what no GGUF file can say.
    """
    checkpoint = open_checkpoint(source)
    how = CONVERTED.get(checkpoint.architecture.name)
    if how is None:
        needed = f"one of {', '.join(CONVERTED)}, whose conversion is proven"
        raise BadInput("convert", "architecture", checkpoint.architecture.name, needed)
    ours = _held(checkpoint, how)
    extra = rope_tensors(checkpoint.config)
    tensors = [_out(checkpoint, name, held) for name, held in ours.items()]
    tensors += [OutTensor(name, array.shape, "f32") for name, array in extra.items()]
    widest = next((t.format for t in tensors if len(t.shape) > 1), "f32")
    folder = source if source.is_dir() else source.parent
    metadata = {
        "general.architecture": string(how.gguf),
        "general.name": string(folder.resolve().name),
        "general.file_type": u32(FILE_TYPES[widest]),
        **model_metadata(checkpoint.config, how),
        **vocab_metadata(folder, checkpoint.config.vocab_size),
        **sampling_metadata(folder),
    }
    _check_config(checkpoint.config, metadata, tensors)

    def read(name: str) -> HostTensor:
        return extra[name] if name in extra else _read(checkpoint, ours[name], how)

    return OutFile(metadata, tensors, read)


def sampling_metadata(folder: Path) -> dict[str, bytes]:
    """Return the keys for what the folder recommends for sampling, none if it says nothing.

    All values are stated, so that a reader takes none of its own for those that the folder leaves neutral.
    """
    if (defaults := folder_defaults(folder)) is FALLBACK:
        return {}
    stated = defaults.values()
    return {
        GGUF_PREFIX + key: u32(int(stated[name])) if name == "top_k" else f32(stated[name])
        for name, key in GGUF_KEYS.items()
    }


def _check_config(config: Decoder, metadata: dict[str, bytes], tensors: list[OutTensor]) -> None:
    """BadInput unless the file's reader finds the folder's configuration in it; floats are float32 there."""
    stored = parse_gguf(header(metadata, []), Path("the GGUF file")).metadata
    entries = {t.name: TensorEntry(t.name, t.shape, t.format, t.num_bytes, True, "") for t in tensors}
    _, after = read_config(Fields(stored, "convert"), True, entries)
    config = _apart(config)
    for field in fields(Decoder):
        ours, theirs = getattr(config, field.name), getattr(after, field.name)
        if field.name == "ropes":
            ours, theirs = ([(n, r.dims) for n, r in sorted(ropes.items())] for ropes in (ours, theirs))
        is_unused = field.name == "ffn_size" and all(layer.ffn == "experts" for layer in config.layers)
        if not agree_in_float32(ours, theirs) and not is_unused and field.name not in STATED_ELSEWHERE:
            raise BadInput("convert", field.name, str(ours)[:80], f"{str(theirs)[:80]}, as a GGUF file would be read")


def agree_in_float32(ours: Any, theirs: Any) -> bool:
    """Return whether two values of a configuration are equal, where every float may have been rounded to float32."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=FLOAT32_TOLERANCE)
    if type(ours) is not type(theirs):
        return bool(ours == theirs)
    if is_dataclass(ours):
        return all(agree_in_float32(getattr(ours, f.name), getattr(theirs, f.name)) for f in fields(ours))
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(agree_in_float32(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(map(agree_in_float32, ours, theirs))
    return bool(ours == theirs)


@dataclass(frozen=True)
class Held:
    """Our names of the tensors that a GGUF tensor holds, one behind another along its rows; and its shape there."""

    parts: tuple[str, ...]
    shape: tuple[int, ...]


def _held(checkpoint: FileCheckpoint, how: Converted) -> dict[str, Held]:
    """By GGUF's names."""
    target = ARCHITECTURES[how.gguf].tensors(_apart(checkpoint.config), is_gguf=True)
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, stored in target.items():
        found[stored.name].append((stored.rows.taken[0] if stored.rows else 0, name))
    shapes = {stored.name: stored.needed for stored in target.values()}
    return {gguf: Held(tuple(name for _, name in sorted(parts)), shapes[gguf]) for gguf, parts in found.items()}


def _apart(config: Decoder) -> Decoder:
    """The configuration with gate and up of experts apart, as all GGUF files have them."""
    return replace(config, mixture=replace(config.mixture, is_joined=False)) if config.mixture else config


def _out(checkpoint: FileCheckpoint, gguf: str, held: Held) -> OutTensor:
    formats = {spec.format for spec in map(checkpoint.spec, held.parts) if spec is not None}
    if len(formats) != 1 or not formats <= set(PLAIN):
        raise BadInput("convert", f"tensor {gguf}", " and ".join(sorted(formats)), "plain tensors of one format")
    is_small = len(held.shape) < 2 or KEPT.search(gguf) is not None
    return OutTensor(gguf, held.shape, "f32" if is_small else formats.pop())


def _read(checkpoint: FileCheckpoint, held: Held, how: Converted) -> np.ndarray:
    arrays = [_oriented(checkpoint, name, how) for name in held.parts]
    return (arrays[0] if len(arrays) == 1 else np.concatenate(arrays)).reshape(held.shape)


def _oriented(checkpoint: FileCheckpoint, name: str, how: Converted) -> np.ndarray:
    """A tensor with its rows in GGUF's order."""
    array, config = checkpoint.tensor(name), checkpoint.config
    if isinstance(array, Packed):
        raise BadInput("convert", f"tensor {name}", array.format.name, "a plain tensor")
    if not how.interleaves or not name.endswith(ROTATED):
        return array
    num_heads = config.num_heads if ".attn.q" in name else config.num_kv_heads
    halves = array.reshape(num_heads, 2, config.head_size // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
