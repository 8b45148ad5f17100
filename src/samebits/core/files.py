"""Files that are written whole or not at all, and their hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from samebits.core.errors import BadInput

CHUNK_BYTES = 1 << 20


def write_json(path: Path, content: Any) -> None:
    """Writes the content as JSON, whole or not at all."""
    write_atomically(path, json.dumps(content, indent=1) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Writes the whole file or nothing; BadInput where it cannot be written."""
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")  # process ids are not unique across containers
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise BadInput("report", str(path), error.strerror, "a file that can be written") from error
    finally:
        with suppress(OSError):  # it is gone, or never was
            partial.unlink()


def check_target(where: str, argument: str, path: Path | None) -> None:
    """BadInput for a file that could not be written, before anything is run; nothing for None."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise BadInput(where, argument, path, "a file in a folder that exists")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def lines_sha256(folder: Path, paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the lines that `sha256sum` prints for these files in their folder."""
    lines = (f"{file_sha256(path)}  {path.relative_to(folder)}\n" for path in paths)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
