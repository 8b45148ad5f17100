"""Memory of this machine: how much there is for this process, and how much of it is free."""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class HostMemory(NamedTuple):
    """Bytes in all, and bytes that can be taken without swapping; 0 if the system does not say."""

    total_bytes: int
    free_bytes: int


def host_memory(system: Path = Path("/")) -> HostMemory:
    """Return this machine's memory, within the limits of its control groups, which is how containers are limited.

    `system` is the root of the file system to read.
    """
    found = _proc_memory(system) or _os_memory()
    for limit, used in _group_limits(system):
        total, free = found
        found = HostMemory(min(total, limit), max(0, min(free, limit - used)))
    return found


def _proc_memory(system: Path) -> HostMemory | None:
    """Return what Linux says of the whole machine."""
    kilobytes: dict[str, int] = {}
    for line in _text(system / "proc/meminfo").splitlines():
        key, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdecimal():
            kilobytes[key] = int(number[0])
    total, free = kilobytes.get("MemTotal"), kilobytes.get("MemAvailable", kilobytes.get("MemFree"))
    return None if total is None or free is None else HostMemory(total << 10, free << 10)


def _os_memory() -> HostMemory:
    """Return what other systems say. macOS tells no free memory that means anything: half of all counts as free."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return HostMemory(0, 0)
    return HostMemory(total, total // 2)


def _windows_memory() -> HostMemory:
    import ctypes

    names = ("total", "free", "page_total", "page_free", "virtual_total", "virtual_free", "extended_free")

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            *((name, ctypes.c_uint64) for name in names),
        )

    status = Status()
    status.length = ctypes.sizeof(Status)
    if not ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status)):  # type: ignore[attr-defined]
        return HostMemory(0, 0)
    return HostMemory(int(status.total), int(status.free))


def _group_limits(system: Path) -> list[tuple[int, int]]:
    """Return (limit, bytes used) of each control group that holds this process and has a limit.

    Pages of files count as used there. They can be dropped, and do not count here: else a container that has read a
    large model's file twice would seem full.
    """
    found = []
    for line in _text(system / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        group = PurePosixPath(name.lstrip("/"))
        for inside in (group, *group.parents):
            if controllers:
                folder, names = system / "sys/fs/cgroup/memory" / inside, ("limit_in_bytes", "usage_in_bytes")
                cache_keys = ("total_inactive_file", "total_active_file")
            else:
                folder, names = system / "sys/fs/cgroup" / inside, ("max", "current")
                cache_keys = ("inactive_file", "active_file")
            limit, used = (_text(folder / f"memory.{name}") for name in names)
            if limit.isdecimal() and used.isdecimal():
                lines = _text(folder / "memory.stat").splitlines()
                counts = dict(line.split(maxsplit=1) for line in lines if len(line.split()) == 2)
                dropped = [int(counts[key]) for key in cache_keys if counts.get(key, "").isdecimal()]
                found.append((int(limit), max(0, int(used) - sum(dropped))))
    return found


def _text(path: Path) -> str:
    """Return a small file's text without surrounding whitespace, or "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
