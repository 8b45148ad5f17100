"""What Linux says of a process and its descendants."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none for one that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, zombies left out."""
    by_parent: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) and fields[0] != "Z":
            by_parent.setdefault(int(fields[1]), []).append(int(entry))
    found, left = [], [pid]
    while left:
        children = by_parent.get(left.pop(), [])
        found += children
        left += children
    return found


def cpu_seconds(pid: int) -> float:
    """Of a process and its descendants, those included that it has waited for."""
    fields = [_stat(p) for p in (pid, *descendants(pid))]
    return sum(int(ticks) for f in fields if f for ticks in f[11:15]) / TICKS


def resident_bytes(pid: int) -> int:
    """Of a process and its descendants; pages they share are counted once, in proportion."""
    total = 0
    for p in (pid, *descendants(pid)):
        try:
            lines = Path(f"/proc/{p}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total
