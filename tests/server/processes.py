"""What Linux says of a process and its descendants."""

from __future__ import annotations

import os
import threading
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS = 0.02


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none for one that has gone. Meters read it of all, all the time."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().decode(errors="replace").rpartition(")")[2].split()
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


def _pss_bytes(pid: int) -> int:
    """Memory of a process, pages that it shares in proportion; 0 for one that has gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _status_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


class Meter:
    """The most memory that a process and its descendants have while a `with` block runs.

    The process's own peak is the kernel's; its descendants are looked at every few milliseconds.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._is_over = pid, threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._others_peak = self.peak_bytes = 0

    def now(self) -> int:
        """Bytes at this moment."""
        return _status_bytes(self._pid, "VmRSS") + self._others()

    def __enter__(self) -> Meter:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # the peak begins anew
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._looking.join()
        self.peak_bytes = _status_bytes(self._pid, "VmHWM") + self._others_peak

    def _others(self) -> int:
        return sum(map(_pss_bytes, descendants(self._pid)))

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self._others_peak = max(self._others_peak, self._others())
