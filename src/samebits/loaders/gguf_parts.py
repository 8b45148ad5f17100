"""A GGUF model in several files, name-00001-of-00003.gguf and so on, opened as one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from samebits.core.errors import BadInput
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import GgufFile, Place, open_gguf
from samebits.loaders.source import TensorEntry

PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.ASCII)
MAX_PARTS = 512


def part_names(name: str) -> list[str]:
    """The names of all parts, in order, by that of any of them; the name alone where it is no part's."""
    found = PART.search(name)
    if found is None:
        return [name]
    number, count = int(found["number"]), int(found["count"])
    if not 1 <= number <= count <= MAX_PARTS:
        needed = f"a part from 1 to the number of parts, which is at most {MAX_PARTS}"
        raise BadInput("model", "part", f"{number} of {count}", needed)
    return [f"{name[: found.start()]}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]


def open_gguf_model(path: Path) -> GgufFile:
    """The file at `path`, or where it is a part of a model all of its parts as one, with the first part's metadata.

    BadInput where a part is missing, belongs to another model, or holds a tensor that another holds too.
    """
    paths = [path.with_name(name) for name in part_names(path.name)]
    parts = [open_gguf(part) for part in paths]
    first = parts[0]
    tensors: dict[str, TensorEntry] = {}
    places: dict[str, Place] = {}
    stated = Fields(first.metadata, str(first.path)).integer("split.count", 0, MAX_PARTS, 0)
    if stated > 1 and stated != len(parts):
        raise BadInput(str(path), "split.count", stated, f"{len(parts)}, as many as the file's name says")
    for number, part in enumerate(parts):
        if len(parts) > 1:
            _check_part(part, number, len(parts))
        if twice := tensors.keys() & part.tensors.keys():
            raise BadInput(str(part.path), f"tensor {min(twice)[:80]}", "in two parts", "one tensor of each name")
        tensors |= part.tensors
        places |= part.places
    total = Fields(first.metadata, str(first.path)).integer("split.tensors.count", 0, 1 << 20, len(tensors))
    if len(parts) > 1 and total != len(tensors):
        raise BadInput(str(first.path), "split.tensors.count", total, f"{len(tensors)}, as many as the parts hold")
    return replace(first, path=path, tensors=tensors, places=places)


def _check_part(part: GgufFile, number: int, count: int) -> None:
    fields = Fields(part.metadata, str(part.path), "split.")
    for key, value in (("count", count), ("no", number)):
        if (given := fields.integer(key, 0, MAX_PARTS)) != value:
            raise fields.fail(key, given, f"{value}, as the file's name says")
