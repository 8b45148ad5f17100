"""Which model this is, by content: SHA-256 of its weights, of its tokenizer and of its chat template.

The hashes are computed once per model and kept as a note in the cache folder. The note's key is made of the model's
path and the size, mtime, ctime, inode and device of each of its files: programs that copy a file onto another one can
set its mtime, and images of file systems often have one mtime and the same inodes for all files. Nothing is written
beside a model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.files import file_sha256, lines_sha256, write_atomically
from samebits.loaders.cache import cache_dir
from samebits.loaders.files import (
    CONFIG_FILES,
    TEMPLATE_KEY,
    TOKENIZER_FILES,
    Facts,
    ModelFile,
    facts_of,
    folder_of,
    open_file,
    read_template,
    stated,
    weight_files,
)
from samebits.loaders.gguf import GgufFile
from samebits.loaders.hf_tokenizer import has_tokenizer
from samebits.loaders.special_parts import is_phi3
from samebits.loaders.texts import Texts
from samebits.receipts.kinds import Hex, OrNone
from samebits.receipts.record import Model, canonical

log = logging.getLogger("samebits.receipts")
MAX_NOTE_BYTES = 1 << 20
NOTES_FOLDER = ".identities"  # in the cache folder
MAX_NOTES = 1000  # the oldest ones are deleted: models move, change and go away
HASHES = ("weights_sha256", "tokenizer_sha256", "chat_template_sha256")


def identity(name: str, path: Path, facts: Facts) -> Model:
    """The model at `path`, called `name`; `facts` are its files' when it was loaded.

    BadInput where the files are others by now.
    """
    note_path = _note_path(path, facts)
    hashes = None if note_path is None else _read_note(note_path)
    if hashes is None:
        hashes = _computed(path, facts)
        if note_path is not None:
            _keep(note_path, hashes)
    return Model(name, *(hashes[key] for key in HASHES))


def people_name(model: str | Path, path: Path) -> str:
    """What a model is called: as it was asked for, or by its file's name, since a path is one machine's."""
    return path.name if isinstance(model, Path) or Path(model).expanduser().exists() else model


def _computed(path: Path, facts: Facts) -> dict[str, Any]:
    file = open_file(path)
    log.info("computing the SHA-256 of %s, once", path)
    template = read_template(file)
    hashes = (
        _weights_sha256(file),
        _tokenizer_sha256(file),
        None
        if template is None
        else hashlib.sha256(template.whole_source.encode("utf-8", "surrogatepass")).hexdigest(),
    )
    if facts_of(file) != facts:
        given = f"{path}, which was written after it was loaded"
        raise BadInput("receipt", "model", given, "files that do not change")
    return dict(zip(HASHES, hashes, strict=True))


def _weights_sha256(file: ModelFile) -> str:
    """Of one GGUF file, its own; of several files, of the lines that `sha256sum` prints for them in their folder."""
    paths = weight_files(file)
    folder = folder_of(file.path)
    if not isinstance(file, GgufFile):
        paths = sorted([*paths, *(folder / name for name in CONFIG_FILES if (folder / name).is_file())])
    elif len(paths) == 1:
        return file_sha256(paths[0])
    return lines_sha256(folder, paths)


def _tokenizer_sha256(file: ModelFile) -> str | None:
    """Of a GGUF file, of its metadata on the tokenizer; of a folder, of sha256sum's lines for the files that say it."""
    if not isinstance(file, GgufFile):
        folder = folder_of(file.path)
        if not has_tokenizer(folder):
            return None
        return lines_sha256(folder, [folder / name for name in sorted(TOKENIZER_FILES) if (folder / name).is_file()])
    said = {k: v for k, v in file.metadata.items() if k.startswith("tokenizer.") and not k.startswith(TEMPLATE_KEY)}
    if said and is_phi3(name := file.metadata.get("general.name")):
        said["general.name"] = name  # by which its special tokens strip white space
    return _metadata_sha256(said) if said else None


def _metadata_sha256(said: Mapping[str, Any]) -> str:
    """Of keys in order with their values' hashes, a line each."""
    digest = hashlib.sha256()
    for key in sorted(said):
        digest.update(f"{_value_sha256(said[key])}  {key}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _value_sha256(value: Any) -> str:
    """Of a value's canonical JSON."""
    plain = list(value) if isinstance(value, Texts) else value.tolist() if isinstance(value, np.ndarray) else value
    return hashlib.sha256(canonical(plain)).hexdigest()


def _note_path(path: Path, facts: Facts) -> Path | None:
    """Return where the hashes of these files are kept, or None if the files are not as `facts` states."""
    folder = folder_of(path)
    try:
        if stated(folder, facts) != facts:
            return None
        files = {name: os.stat(folder / name) for name in facts}
    except OSError:
        return None
    further = {name: [file.st_ctime_ns, file.st_ino, file.st_dev] for name, file in files.items()}
    key = canonical([os.fsencode(path.absolute()).hex(), facts, further])
    return cache_dir() / NOTES_FOLDER / f"{hashlib.sha256(key).hexdigest()[:32]}.json"


def _read_note(note: Path) -> dict[str, Any] | None:
    """Return the hashes that a note holds, or None if the note is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        found = json.loads(note.read_bytes()[:MAX_NOTE_BYTES])
        if isinstance(found.get("weights_sha256"), str):
            return {key: OrNone(Hex()).read(key, found.get(key)) for key in HASHES}
    return None


def _keep(note: Path, hashes: Mapping[str, Any]) -> None:
    """Write a note. If the cache folder cannot be written, every process computes the hashes again."""
    with suppress(OSError, BadInput):
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(note, json.dumps(hashes))
        notes = sorted(os.scandir(note.parent), key=lambda entry: entry.stat().st_mtime_ns)
        for entry in notes[:-MAX_NOTES]:
            os.unlink(entry)
