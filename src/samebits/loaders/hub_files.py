"""Which files of a repository make the model that is meant: one GGUF file, all parts of one, or a folder's worth."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from samebits.core.errors import BadInput
from samebits.loaders.download import FetchFailed, read_small
from samebits.loaders.gguf_parts import MAX_PARTS, PART, part_names
from samebits.loaders.hub_names import HubName
from samebits.loaders.manifest import PulledFile, is_inside
from samebits.loaders.safetensors_dir import INDEX, SINGLE

MAX_LISTING_BYTES = 64 << 20
MAX_FILES = 100_000  # of a repository, as the hub itself recommends
MAX_SHOWN = 24
CONFIG = "config.json"
BESIDE = (  # read beside the weights, where a repository has them
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "hf_quant_config.json",
)
MORE_TEMPLATES = re.compile(r"additional_chat_templates/[^/]+\.jinja")
MAX_TEMPLATES = 64
NOT_OURS = ("tokenizer.model", "vocab.json")  # tokenizers that a loader refuses; without them it would find none
_KIND = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|B?F16|F32|MXFP4\w*|NVFP4\w*))$", re.ASCII | re.IGNORECASE)
_HEX = {40: re.compile(r"[0-9a-f]{40}"), 64: re.compile(r"[0-9a-f]{64}")}


def listing(name: HubName) -> tuple[str, dict[str, PulledFile]]:
    """The commit that a name's revision is, and its files by path; FetchFailed for an answer that is none."""
    address = name.listing_address()
    data = read_small(address, MAX_LISTING_BYTES)
    try:
        found = json.loads(data)
        commit, siblings = _hex(found["sha"], 40), found["siblings"]
        if len(siblings) > MAX_FILES:
            raise FetchFailed(f"{name.text}: a repository of {len(siblings)} files; needs at most {MAX_FILES}")
        entries = [_entry(sibling) for sibling in siblings]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FetchFailed(f"{address}: {type(error).__name__} in its answer; needs the hub's list of files") from None
    if commit is None:
        raise FetchFailed(f"{address}: no commit in its answer; needs the hub's list of files")
    return commit, {entry.path: entry for entry in entries if entry is not None and is_inside(entry.path)}


def _entry(sibling: Mapping[str, Any]) -> PulledFile | None:
    """A file of the list; None for one without a size, which none has that can be fetched."""
    lfs = sibling.get("lfs") or {}
    size = lfs.get("size", sibling.get("size"))
    if type(size) is not int or size < 0:
        return None
    sha256 = _hex(lfs.get("sha256"), 64)
    return PulledFile(str(sibling["rfilename"]), size, sha256, None if lfs else _hex(sibling.get("blobId"), 40))


def _hex(value: Any, num_digits: int) -> str | None:
    return value if isinstance(value, str) and _HEX[num_digits].fullmatch(value) else None


def is_folder(name: HubName, files: Iterable[str]) -> bool:
    """Whether the safetensors files of a repository are meant."""
    return name.kind is None and CONFIG in files and (SINGLE in files or INDEX in files)


def beside(files: Iterable[str]) -> list[str]:
    """The files that are read beside the weights, of those that there are."""
    names = BESIDE if "tokenizer.json" in files else (*BESIDE, *NOT_OURS)
    templates = sorted(name for name in files if MORE_TEMPLATES.fullmatch(name))[:MAX_TEMPLATES]
    return [*(name for name in names if name in files), *templates]


def gguf_files(name: HubName, files: Iterable[str]) -> list[str]:
    """The one GGUF file, or all its parts in order; BadInput lists what is there where that is not one model."""
    models = _gguf_models(files)
    wanted = name.kind.lower() if name.kind else None
    found = [first for first in models if wanted is None or wanted == kind_of(first).lower()]
    if len(found) == 1:
        return models[found[0]]
    kinds = sorted({kind_of(first) or PurePosixPath(first).name for first in models}, key=str.lower)
    shown = ", ".join(kinds[:MAX_SHOWN]) + (f" and {len(kinds) - MAX_SHOWN} more" if len(kinds) > MAX_SHOWN else "")
    where = f"hf:{name.owner}/{name.repo}"
    if not models:
        needed = f"a GGUF file, or {CONFIG} beside {SINGLE} or {INDEX}"
        raise BadInput(where, "files", "none that we load", needed)
    if len(found) > 1 and wanted is not None:
        several = ", ".join(PurePosixPath(first).name for first in found[:MAX_SHOWN])
        raise BadInput(where, "type", f"{name.kind} for several files: {several}", f"one of them, as {where}/FILE")
    given = f"no {name.kind} among {shown}" if name.kind else f"{len(models)} GGUF models"
    raise BadInput(where, "type", given, f"one of {shown}, as in {where}:{kinds[0]}")


def kind_of(path: str) -> str:
    """The type that a GGUF file's name states, such as Q4_K_M; "" where it states none."""
    stem = PART.sub("", PurePosixPath(path).name)
    found = _KIND.search(stem.removesuffix(".gguf"))
    return found[1] if found else ""


def _gguf_models(files: Iterable[str]) -> dict[str, list[str]]:
    """The parts of every GGUF model by its first; what stands for pictures beside one is no model."""
    present = {f for f in files if f.lower().endswith(".gguf") and "mmproj" not in PurePosixPath(f).name.lower()}
    found = {path: [path] for path in present if not PART.search(path)}
    numbers: dict[str, set[int]] = defaultdict(set)  # of the parts that are there, by the first part's name
    for part in filter(None, map(PART.search, present)):
        number, count = int(part["number"]), int(part["count"])
        if 1 <= number <= count <= MAX_PARTS:
            numbers[f"{part.string[: part.start()]}-00001-of-{part['count']}.gguf"].add(number)
    for first, known in numbers.items():
        stated = PART.search(first)
        if stated and len(known) == int(stated["count"]):  # before the names are made, which may be many more
            found[first] = part_names(first)
    return dict(sorted(found.items()))
