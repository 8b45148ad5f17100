"""Whether a file of the cache is still what was fetched: its SHA-256, where one is known, computed once a file.

A note beside the file says what was checked, and of which size, time and inode; another file asks for another look.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from samebits.core.errors import BadInput, SamebitsError
from samebits.core.files import write_atomically
from samebits.loaders.cache import cache_dir
from samebits.loaders.catalog import MODELS, PackagedModel
from samebits.loaders.manifest import read_manifest

log = logging.getLogger("samebits.loaders")
CHUNK_BYTES = 1 << 20
MAX_NOTE_BYTES = 4096
Progress = Callable[[str, int, int | None], None]  # what is done, bytes so far, bytes in all where known
_checked_here: dict[Path, dict[str, Any]] = {}  # by this process, for caches that cannot be written


class Damaged(SamebitsError):
    """A file has another checksum than it must; the text names both."""


def note_path(path: Path) -> Path:
    return path.with_name(path.name + ".checked.json")


def known_sha256(path: Path) -> str | None:
    """What a file of the cache must have: a packaged model's, or what it was pulled with. None elsewhere."""
    if path.parent != cache_dir():
        return None
    for model in MODELS.values():
        if isinstance(model, PackagedModel) and path.name == model.file_name:
            return model.sha256
    stated = _read_note(path).get("sha256")
    return stated if isinstance(stated, str) else None


def known_files(path: Path) -> list[tuple[Path, str]]:
    """The files of the model at `path` whose SHA-256 is known, and what it is: of a pulled folder, all large ones."""
    if cache_dir() in path.parents:
        folder = cache_dir() / path.relative_to(cache_dir()).parts[0]
        if (manifest := read_manifest(folder)) is not None:
            return [(folder / file.path, file.sha256) for file in manifest.files if file.sha256]
    sha256 = known_sha256(path)
    return [] if sha256 is None else [(path, sha256)]


def is_checked(path: Path, sha256: str) -> bool:
    """Whether the file, as it is now, was found to have this checksum before."""
    facts = _facts(os.stat(path), sha256)
    return _checked_here.get(path) == facts or _read_note(path) == facts


def check_file(path: Path, sha256: str, progress: Progress | None = None) -> None:
    """Damaged unless the file has that checksum. Reads all of it, and writes nothing."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            if progress:
                progress("checking", done, total)
    if digest.hexdigest() != sha256:
        raise Damaged(f"{path}: SHA-256 is {digest.hexdigest()}; needs {sha256}")


def check_once(path: Path, sha256: str, progress: Progress | None = None) -> None:
    """Damaged unless the file of the cache has that checksum, and a note that it has."""
    before = os.stat(path)
    check_file(path, sha256, progress)
    note_checked(path, sha256, before)  # a file that was written meanwhile is another, and is looked at again


def check_known(path: Path) -> None:
    """Damaged for a file of the cache that is not what it must be; reads one only if it has not been checked yet."""
    for file, sha256 in known_files(path):
        if not file.is_file() or is_checked(file, sha256):
            continue
        log.info("checking the SHA-256 of %s, once", file)
        try:
            check_once(file, sha256)
        except Damaged as error:
            raise Damaged(f"{error}: it is damaged; `samebits pull` fetches it anew") from None


def note_checked(path: Path, sha256: str, stat: os.stat_result) -> None:
    """Remembers that the file had this checksum when `stat` was taken, in a note where the folder can be written."""
    facts = _checked_here[path] = _facts(stat, sha256)
    with suppress(BadInput):  # a cache that cannot be written is checked by every process anew
        write_atomically(note_path(path), json.dumps(facts))


def _facts(stat: os.stat_result, sha256: str) -> dict[str, Any]:
    return {"sha256": sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}


def _read_note(path: Path) -> dict[str, Any]:
    """The note beside a file; nothing for one that is missing or no note."""
    try:
        with note_path(path).open("rb") as stream:
            found = json.loads(stream.read(MAX_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
