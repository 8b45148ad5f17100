"""`samebits ps`: the servers that run on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from samebits.cli import flags
from samebits.cli.output import AsJson, Output, emit
from samebits.cli.server_notes import ServerNote, all_notes, forget
from samebits.core.files import check_target
from samebits.core.printable import printable

SECONDS_TO_ANSWER = 2.0


def ps(as_json: AsJson = False, output: Output = None) -> None:
    """List the servers that you started on this machine: model, address, process and state."""
    check_target("ps", "--output", output)
    rows: list[dict[str, object]] = []
    for file, note in all_notes():
        if not _runs(note.pid):
            forget(file, note)
            continue
        rows.append({"model": note.model, "address": note.address, "pid": note.pid, "state": _state(note)})
        rows[-1]["seconds"] = round(max(0.0, time.time() - note.started))
    emit(rows, as_json, output)
    if as_json:
        return
    if not rows:
        flags.echo("no server is running; `samebits serve MODEL` starts one")
    else:
        _print(rows)


def _print(rows: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for column in ("model", "address", "process", "state", "up for"):
        table.add_column(column, overflow="fold")
    for row in rows:
        minutes, seconds = divmod(int(str(row["seconds"])), 60)
        shown = (
            row["model"],
            row["address"],
            row["pid"],
            row["state"],
            f"{minutes // 60}:{minutes % 60:02}:{seconds:02}",
        )
        table.add_row(*(escape(printable(cell)) for cell in shown))
    Console().print(table)


def _runs(pid: int) -> bool:
    """Return whether a process has this number; True on systems that do not tell."""
    if sys.platform == "win32":  # os.kill would end it there
        return True
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True


def _state(note: ServerNote) -> str:
    """Return what the server's /health says: ready, loading, the failure, or that it does not answer."""
    try:
        parts = urlsplit(note.address)
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=SECONDS_TO_ANSWER)
        connection.request("GET", "/health")
        found = json.loads(connection.getresponse().read(1 << 16))
        return str(found["status"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return "does not answer"
