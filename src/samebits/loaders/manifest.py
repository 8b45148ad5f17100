"""What lies in a folder of the cache: a list of the files that a model was pulled as, written when all are there."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from samebits.core.errors import BadInput
from samebits.loaders.source import read_json

MANIFEST = "pulled.json"
MAX_MANIFEST_BYTES = 4 << 20
CHUNK_BYTES = 1 << 20
MAX_PATH_CHARS, MAX_NAME_CHARS = 4096, 255  # as file systems have them


@dataclass(frozen=True)
class PulledFile:
    """A file of a repository: its path there, its size, and a checksum: SHA-256 of large files, git's of small ones."""

    path: str
    num_bytes: int
    sha256: str | None = None
    blob: str | None = None

    def problem(self, path: Path) -> str | None:
        """What is wrong with the file at `path`, read as a whole; None if it is this one."""
        if not path.is_file():
            return "is missing"
        if (num_bytes := path.stat().st_size) != self.num_bytes:
            return f"has {num_bytes} bytes; needs {self.num_bytes}"
        if self.sha256 is None and self.blob is None:
            return None
        digest = hashlib.sha256() if self.sha256 else hashlib.sha1(f"blob {num_bytes}\0".encode())
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
        needed = self.sha256 or self.blob
        return None if digest.hexdigest() == needed else f"has the checksum {digest.hexdigest()}; needs {needed}"


@dataclass(frozen=True)
class Manifest:
    """A whole model in a folder of the cache.

    name    by which it was pulled, in full
    commit  of the repository, from which all its files are
    opened  the file to open, or "" for the folder
    """

    name: str
    commit: str
    opened: str
    files: tuple[PulledFile, ...]

    def path(self, folder: Path) -> Path:
        """What a loader opens."""
        return folder / self.opened if self.opened else folder

    def file(self, path: str) -> PulledFile | None:
        return next((file for file in self.files if file.path == path), None)

    def is_whole(self, folder: Path) -> bool:
        """Whether all files are there, in their sizes."""
        return all(_size(folder / file.path) == file.num_bytes for file in self.files)


def read_manifest(folder: Path) -> Manifest | None:
    """What was pulled into a folder; None where it is not complete, or no such folder."""
    if not (folder / MANIFEST).is_file():
        return None
    try:
        found = read_json(folder / MANIFEST, MAX_MANIFEST_BYTES)
        files = tuple(_file(entry) for entry in found["files"])
        manifest = Manifest(str(found["name"]), str(found["commit"]), str(found["opened"]), files)
    except (BadInput, KeyError, TypeError):
        return None
    is_known = not manifest.opened or manifest.file(manifest.opened) is not None
    return manifest if is_known and all(map(is_inside, (file.path for file in files))) else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Makes a folder's files a model, all at once."""
    new = folder / f".{MANIFEST}.{os.getpid()}"
    new.write_text(json.dumps(asdict(manifest), indent=1))
    new.replace(folder / MANIFEST)


def is_inside(path: str) -> bool:
    """Return whether a repository's path stays in the folder that it is written to, and is no longer than paths may be.

    Both hold on every system.
    """
    if len(path) > MAX_PATH_CHARS:
        return False
    parts = path.split("/")  # as they are written: a path's own parts leave "." out
    is_plain = re.fullmatch(r"[\w .+()=@,-]+(?:/[\w .+()=@,-]+)*", path, re.ASCII) is not None
    return is_plain and not any(
        len(part) > MAX_NAME_CHARS or part.startswith(".") or part.endswith((".", " ")) for part in parts
    )


def _file(entry: Any) -> PulledFile:
    if not isinstance(entry, dict):
        raise TypeError("a file's record is an object")
    return PulledFile(str(entry["path"]), int(entry["num_bytes"]), entry.get("sha256"), entry.get("blob"))


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
