"""A GGUF model in several files, name-00001-of-00003.gguf and so on, opened as one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from samebits.core.errors import BadInput
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import GgufFile, Place, open_gguf
from samebits.loaders.limits import MAX_HEADER_BYTES, MAX_TENSORS
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

    BadInput where a part is missing, belongs to another model, or holds a tensor that another holds too. All parts
    together may cost what one file may: parts are opened one by one, until their headers are too long.
    """
    paths = [path.with_name(name) for name in part_names(path.name)]
    first = open_gguf(paths[0])
    fields = Fields(first.metadata, str(first.path))
    stated = fields.integer("split.count", 0, MAX_PARTS, 0)
    if stated > 1 and stated != len(paths):
        raise BadInput(str(path), "split.count", stated, f"{len(paths)}, as many as the file's name says")
    if len(paths) == 1:
        return first
    tensors: dict[str, TensorEntry] = {}
    places: dict[str, Place] = {}
    header_bytes = 0
    for number, part_path in enumerate(paths):
        part = open_gguf(part_path) if number else first
        _check_part(part, number, len(paths))
        header_bytes += _header_bytes(part)
        if header_bytes > MAX_HEADER_BYTES:
            raise BadInput(str(part.path), "header", f"{header_bytes} bytes so far", f"{MAX_HEADER_BYTES} in all parts")
        if twice := tensors.keys() & part.tensors.keys():
            raise BadInput(str(part.path), f"tensor {min(twice)[:80]}", "in two parts", "one tensor of each name")
        tensors |= part.tensors
        places |= part.places
    total = fields.integer("split.tensors.count", 0, MAX_PARTS * MAX_TENSORS, len(tensors))
    if total != len(tensors):
        raise BadInput(str(first.path), "split.tensors.count", total, f"{len(tensors)}, as many as the parts hold")
    return replace(first, path=path, tensors=tensors, places=places)


def _header_bytes(part: GgufFile) -> int:
    """What stands before the tensors; all of a part that holds none."""
    return min((place.offset for place in part.places.values()), default=part.path.stat().st_size)


def _check_part(part: GgufFile, number: int, count: int) -> None:
    fields = Fields(part.metadata, str(part.path), "split.")
    for key, value in (("count", count), ("no", number)):
        if (given := fields.integer(key, 0, MAX_PARTS)) != value:
            raise fields.fail(key, given, f"{value}, as the file's name says")
