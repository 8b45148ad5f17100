"""How many processors a process may use, by its affinity and the CPU quotas of its control groups; and their name."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from samebits.core.processors import processor_name, usable_processors

MANY = 24


@pytest.fixture(autouse=True)
def machine_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MANY)), raising=False)


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MANY),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, MANY),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "20000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, MANY),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3),  # of a group around it
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "500000 100000",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/a\n4:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            MANY,
        ),
        ({"proc/self/cgroup": "nonsense", "sys/fs/cgroup/cpu.max": "0 0"}, MANY),
    ],
)
def test_quotas_of_control_groups_count(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert usable_processors(system(tmp_path, files)) == expected


def test_this_machine_has_one() -> None:
    assert 1 <= usable_processors() <= MANY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: Xeon(R) 8375C @ 2.90GHz\nmodel name\t: other\n", "Xeon(R) 8375C @ 2.90GHz"),
        ("processor\t: 0\nModel\t\t: Raspberry Pi 5\n", "Raspberry Pi 5"),
    ],
)
def test_the_name_is_what_the_system_calls_the_first_processor(tmp_path: Path, text: str, expected: str) -> None:
    assert processor_name(system(tmp_path, {"proc/cpuinfo": text})) == expected


def test_a_system_that_tells_nothing_has_a_name_too(tmp_path: Path) -> None:
    assert processor_name(tmp_path) == (platform.processor() or platform.machine())
