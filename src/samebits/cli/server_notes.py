"""Notes of the servers that run on this machine, which `samebits ps` reads: a file for each in the state folder."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
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
    file = _file(note)
    with suppress(OSError, BadInput):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(file, asdict(note))
    try:
        yield
    finally:
        if read_note(file) == note:  # a later server at the same address has a note of its own
            file.unlink(missing_ok=True)


def read_note(file: Path) -> ServerNote | None:
    """Return a note, or None if the file is gone or is no note."""
    try:
        with file.open("rb") as stream:
            found = json.loads(stream.read(MAX_NOTE_BYTES))
        note = ServerNote(**found)
        whole = ServerNote(str(note.model), str(note.address), int(note.pid), float(note.started))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return whole if whole == note else None


def all_notes() -> list[ServerNote]:
    """Return the notes of servers, the oldest server first."""
    folder = notes_dir()
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return sorted(filter(None, map(read_note, files)), key=lambda note: note.started)


def forget(note: ServerNote) -> None:
    """Remove the note of a server that no longer runs."""
    if read_note(_file(note)) == note:
        _file(note).unlink(missing_ok=True)


def _file(note: ServerNote) -> Path:
    return notes_dir() / (re.sub(r"[^A-Za-z0-9.-]+", "_", note.address) + ".json")
