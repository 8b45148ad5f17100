"""How much memory there is for this process: the machine's, within the limits of its control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from samebits.core.host_memory import HostMemory, host_memory

MEMINFO = "MemTotal:       8192 kB\nMemFree:        1024 kB\nMemAvailable:   4096 kB\nHugePages_Total:       0\n"
KIB = 1024


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_machine_without_limits(tmp_path: Path) -> None:
    assert host_memory(system(tmp_path, {})) == HostMemory(8192 * KIB, 4096 * KIB)


def test_an_old_kernel_tells_free_memory_alone(tmp_path: Path) -> None:
    text = "MemTotal: 8192 kB\nMemFree: 1024 kB\n"
    assert host_memory(system(tmp_path, {"proc/meminfo": text})) == HostMemory(8192 * KIB, 1024 * KIB)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("used", [100, 5000])
def test_a_container_has_no_more_than_its_limit(tmp_path: Path, version: int, used: int) -> None:
    """Pages of files that can be dropped do not count as used; a group above the process's own counts too."""
    names = (
        ("limit_in_bytes", "usage_in_bytes", "total_inactive_file", "total_active_file")
        if version == 1
        else ("max", "current", "inactive_file", "active_file")
    )
    folder = "sys/fs/cgroup/memory" if version == 1 else "sys/fs/cgroup"
    line = "9:memory:/pod/box\n1:cpu:/elsewhere\n" if version == 1 else "0::/pod/box\n"
    files = {
        "proc/self/cgroup": line,
        f"{folder}/pod/memory.{names[0]}": f"{2048 * KIB}\n",
        f"{folder}/pod/memory.{names[1]}": f"{used * KIB}\n",
        f"{folder}/pod/memory.stat": f"anon 7\n{names[2]} {20 * KIB}\n{names[3]} {30 * KIB}\nodd line here\nodd\n",
        f"{folder}/pod/box/memory.{names[0]}": "max\n" if version == 2 else f"{2**60}\n",
        f"{folder}/pod/box/memory.{names[1]}": f"{10 * KIB}\n",
    }
    free = max(0, 2048 - (used - 50)) * KIB
    assert host_memory(system(tmp_path, files)) == HostMemory(2048 * KIB, free)


def test_this_machine() -> None:
    found = host_memory()
    assert 0 < found.free_bytes <= found.total_bytes
