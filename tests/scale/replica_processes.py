"""The processes of replicas that a process has started, through Ray."""

from __future__ import annotations

from pathlib import Path

TITLE = b"ray::ServeReplica:samebits"


def replica_processes(of: int) -> list[int]:
    """Ids of those that descend from the process `of`, the oldest first."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if (folder / "cmdline").read_bytes().startswith(TITLE) and _descends(int(folder.name), of):
                    found.append(int(folder.name))
            except OSError:  # it has ended meanwhile
                continue
    return sorted(found, key=_started)


def _stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _started(process: int) -> int:
    try:
        return int(_stat(process)[19])
    except OSError:
        return 0


def _descends(process: int, of: int) -> bool:
    while process > 1:
        if process == of:
            return True
        process = int(_stat(process)[1])
    return False
