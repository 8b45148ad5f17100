"""Refuses a file that states or stores something that the model would not read: its answers could be wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.printable import printable
from samebits.loaders.fields import Fields, shown
from samebits.loaders.files import ModelFile
from samebits.loaders.gguf import GgufFile
from samebits.models.architecture import Architecture, Stored
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.ignored import COMMON, Value

MAX_LISTED = 4  # names in a message
MAX_NAME_CHARS = 80
OTHER_MODELS = ("vision.", "mm.", "audio.")  # GGUF keys of the parts for images and sounds, which text does not pass
OTHER_TENSORS = r"(v|mm|a)\..*"  # their tensors
HEAD, MAX_COMPARED_ROWS = "lm_head.weight", 64
ROTATIONS = ("rope_parameters", "rope_scaling")
# Buffers that early versions of transformers saved with Llama, and skipped multi-token-prediction layers.
HF_TENSORS = (r".*\brotary_emb\.inv_freq", r"mtp\..*")


def check_keys(architecture: Architecture, fields: Fields, is_gguf: bool) -> None:
    """Raise BadInput for a key of the model's configuration that the architecture has not read.

    `fields` is what the architecture read its configuration from. Keys that change no answer are let through.
    """
    own = architecture.ignored
    ignored = COMMON.gguf | own.gguf if is_gguf else COMMON.hf | own.hf
    own_only = own.gguf_only if is_gguf else own.hf_only
    only = {**(COMMON.gguf_only if is_gguf else COMMON.hf_only), **own_only}
    read = fields.asked - {fields.prefix + key for key in own_only}  # which a shared table may have asked for
    found = _unread(fields, read, ignored, only)
    if is_gguf:
        found = {key: value for key, value in found.items() if not key.startswith(OTHER_MODELS)}
    _refuse_keys(architecture, fields, found, only)
    if not is_gguf:
        for name in ROTATIONS:
            _check_rotation(architecture, fields, name)


def check_whole(architecture: Architecture, fields: Fields) -> None:
    """Raise BadInput for a key beside "text_config" that could say something of the text model."""
    ignored, only = COMMON.hf | architecture.ignored.hf_whole, COMMON.hf_only
    _refuse_keys(architecture, fields, _unread(fields, fields.asked, ignored, only), only)


def _unread(
    fields: Fields, read: Set[str], ignored: frozenset[str], only: Mapping[str, tuple[Value, ...]]
) -> dict[str, object]:
    """Return the keys, without their prefix, that were not read and that may change an answer."""
    prefix, found = fields.prefix, {}
    for name, value in fields.values.items():
        key = name.removeprefix(prefix)
        if not name.startswith(prefix) or name in read or key in ignored or _is_empty(value):
            continue
        if not _is_one_of(value, only.get(key, ())):
            found[key] = value
    return found


def _refuse_keys(
    architecture: Architecture, fields: Fields, found: Mapping[str, object], only: Mapping[str, tuple[Value, ...]]
) -> None:
    if not found:
        return
    name, (key, *others) = architecture.name, found
    if key in only:
        meant = shown(only[key][0]).lower()
        raise fields.fail(
            _name(key), shown(found[key]), f"{meant}: this version supports no other value in {name} models"
        )
    needed = _none("key", name) + _also(fields.prefix + other for other in others)
    raise fields.fail(_name(key), shown(found[key]), needed)


def _check_rotation(architecture: Architecture, fields: Fields, name: str) -> None:
    """Check the keys of the object that describes a rotation, or of one such object for each kind of layer."""
    stated = fields.get(name)
    if not isinstance(stated, dict):
        return
    known = COMMON.rope | architecture.ignored.rope
    parts = {kind: part for kind, part in stated.items() if isinstance(part, dict) and kind not in known}
    own = {key: value for key, value in stated.items() if key not in parts}
    for where, part in {name: own, **{f"{name}: {kind}": part for kind, part in parts.items()}}.items():
        inner = Fields(part, f"{fields.where}: {_name(where)}")
        _refuse_keys(architecture, inner, _unread(inner, set(), known, {}), {})


def check_tensors(
    architecture: Architecture,
    config: Decoder,
    file: ModelFile,
    stored: Iterable[Stored],
) -> None:
    """Raise BadInput for a tensor that no part of the model reads; layers that predict further tokens may have any."""
    is_gguf = isinstance(file, GgufFile)
    read = {name for tensor in stored for name in tensor.names}
    patterns = [*architecture.ignored.tensors, *([OTHER_TENSORS] if is_gguf else HF_TENSORS)]
    if not is_gguf and config.is_tied:
        patterns.append(re.escape(HEAD))
    ignored = re.compile("|".join(patterns))
    layer = re.compile(r"blk\.(\d{1,9})\." if is_gguf else rf"{re.escape(config.hf_root)}\.layers\.(\d{{1,9}})\.")
    left_out = range(config.num_layers, config.num_layers + config.num_more_layers)
    found = []
    for name, entry in file.tensors.items():
        if name in read or ignored.fullmatch(name) or (not isinstance(file, GgufFile) and file.is_scale(name)):
            continue
        number = layer.match(name)
        if number is None or int(number[1]) not in left_out:
            found.append(entry)
    if found:
        first, *others = found
        needed = _none("tensor", architecture.name) + _also(entry.name for entry in others)
        shape = "x".join(map(str, first.shape)) or "of one number"
        raise BadInput(first.file, f"tensor {_name(first.name)}", f"shape {shape}", needed)


def check_tied_head(file: ModelFile, embed: Stored) -> None:
    """Raise BadInput for a folder whose head is tied to the embedding `embed`, and which stores another head.

    transformers 5 uses that head, and earlier versions the embedding. Some rows are compared: training changes all.
    """
    head, table = file.tensors.get(HEAD), file.tensors.get(embed.name)
    if isinstance(file, GgufFile) or head is None or table is None:
        return
    is_same = (head.shape, head.format) == (table.shape, table.format) and head.is_supported
    if is_same:
        rows = {int(i) for i in np.linspace(0, head.shape[0] - 1, MAX_COMPARED_ROWS)}
        is_same = all(_raw(file.read_at(HEAD, i)) == _raw(file.read_at(embed.name, i)) for i in sorted(rows))
    if not is_same:
        needed = "a copy of it, or tie_word_embeddings: false in config.json"
        raise BadInput(head.file, f"tensor {HEAD}", "other numbers than the embedding", needed)


def _raw(row: HostTensor) -> bytes:
    return (row.data if isinstance(row, Packed) else row).tobytes()


def _name(given: str) -> str:
    """Return a name from outside as it fits into a line."""
    return printable(given, MAX_NAME_CHARS)


def _none(what: str, name: str) -> str:
    return f"no such {what}: this version does not read it in {name} models, and it may change answers"


def _also(others: Iterable[str]) -> str:
    listed = list(others)
    if not listed:
        return ""
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    return f"; nor does it read {', '.join(map(_name, listed[:MAX_LISTED]))}{more}"


def _is_empty(value: object) -> bool:
    """Return whether a value says nothing: null, an empty text, list or object."""
    return value is None or (isinstance(value, str | list | dict | np.ndarray) and len(value) == 0)


def _is_one_of(value: object, accepted: tuple[Value, ...]) -> bool:
    return isinstance(value, str | int | float) and value in accepted
