"""The differences between operating systems: file locks, groups of processes and the encoding of standard streams."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import IO, Any

LOCK_POLL_SECONDS = 0.1
CREATE_NEW_PROCESS_GROUP = 0x200  # Windows'; subprocess names it on Windows alone


def own_group() -> dict[str, Any]:
    """Return the arguments of Popen for a process that no Ctrl-C at our terminal reaches."""
    if sys.platform == "win32":
        return {"creationflags": CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def lock_file(file: IO[Any]) -> None:
    """Wait until this process alone holds the open file's lock. Closing the file gives it back."""
    try:
        fcntl: Any = import_module("fcntl")
    except ImportError:
        _lock_on_windows(file)
    else:
        fcntl.flock(file, fcntl.LOCK_EX)


def _lock_on_windows(file: IO[Any]) -> None:
    """Lock the first byte, which Windows locks for one open file at a time, whether the file has it or not."""
    msvcrt: Any = import_module("msvcrt")
    while True:
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return
        except PermissionError:  # another process holds it
            time.sleep(LOCK_POLL_SECONDS)


def use_utf8() -> None:
    """Let standard streams carry every character: on Windows a pipe or a file is read and written as UTF-8.

    Bytes of standard input that are not UTF-8 become lone surrogates, which commands refuse in one line.
    """
    if sys.platform != "win32":
        return
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a program has put a stream of its own
            stream.reconfigure(encoding="utf-8", errors="replace")
