"""Notes of the servers that run on this machine, which `samebits ps` reads: a file for each in the state folder."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path

from samebits.cli.state import state_dir
from samebits.core.errors import BadInput
from samebits.core.files import write_json

MAX_NOTE_BYTES = 16 << 10


@dataclass(frozen=True)
class ServerNote:
    """A server: the model's name, where it listens, its process, and when it started, in seconds since 1970."""

    model: str
    address: str
    pid: int
    started: float


def notes_dir() -> Path:
    return state_dir() / "servers"


@contextmanager
def noted(model: str, address: str) -> Iterator[None]:
    """Keep a note of this process's server while the block runs. A folder that cannot be written has no note."""
    note = ServerNote(model, address, os.getpid(), time.time())
    file = None
    with suppress(OSError, BadInput):
        file = _file(note)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(file, asdict(note))
    try:
        yield
    finally:
        if file is not None:
            forget(file, note)  # a later server at the same address has a note of its own


def read_note(file: Path) -> ServerNote | None:
    """Return a note, or None if the file is gone or is no note."""
    try:
        if not file.is_file():  # a pipe would be waited for
            return None
        with file.open("rb") as stream:
            found = json.loads(stream.read(MAX_NOTE_BYTES))
        note = ServerNote(**found)
        whole = ServerNote(str(note.model), str(note.address), int(note.pid), float(note.started))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return whole if whole == note and isfinite(whole.started) else None


def all_notes() -> list[tuple[Path, ServerNote]]:
    """Return the notes of servers with their files, the oldest server first."""
    folder = notes_dir()
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    found = ((file, read_note(file)) for file in files)
    return sorted(((file, note) for file, note in found if note is not None), key=lambda pair: pair[1].started)


def forget(file: Path, note: ServerNote) -> None:
    """Remove the note of a server that no longer runs, if its file still holds it and can be removed."""
    with suppress(OSError):
        if read_note(file) == note:
            file.unlink(missing_ok=True)


def _file(note: ServerNote) -> Path:
    return notes_dir() / (re.sub(r"[^A-Za-z0-9.-]+", "_", note.address) + ".json")
