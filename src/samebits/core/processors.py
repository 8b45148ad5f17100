"""The processors of this machine: how many this process may use, and their name."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def usable_processors(system: Path = Path("/")) -> int:
    """Return how many processors this process may keep busy, at least 1.

    The affinity mask counts, and on Linux the CPU quota of a control group too, which is how containers are limited:
    threads beyond the quota are stopped together once it is used up. `system` is the root of the file system to read.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *_quotas(system)]))


def processor_name(system: Path = Path("/")) -> str:
    """Return the model of the processor, as its maker calls it where the system tells. `system` as above."""
    for line in _text(system / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.processor() or platform.machine()


def _quotas(system: Path) -> Iterator[int]:
    """Yield the quota, rounded up to whole processors, of each control group that holds this process."""
    for line in _text(system / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        group = PurePosixPath(name.lstrip("/"))
        for inside in (group, *group.parents):
            if not controllers:  # version 2: "max 100000", or microseconds of processor time in each period
                quota, _, period = _text(system / "sys/fs/cgroup" / inside / "cpu.max").partition(" ")
            elif "cpu" in controllers.split(","):  # version 1, where -1 means no limit
                folder = system / "sys/fs/cgroup/cpu" / inside
                quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
            else:
                continue
            if quota.isdecimal() and period.isdecimal() and int(period):
                yield -(-int(quota) // int(period))


def _text(path: Path) -> str:
    """Return a small file's text without surrounding whitespace, or "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
