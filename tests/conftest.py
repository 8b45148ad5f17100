"""Test processes: side by side, each has its share of the cores and whole files; those they start share bytecode.

Teams of threads that share cores wait for each other more than they work, and a fixture is made once per process.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
from slow import FOLDERS, slow_names

gc.disable()  # until the tests are collected: they all stay to the end

settings.register_profile("patient", deadline=None)  # cores may be given to others for a while
settings.load_profile("patient")

os.environ["SAMEBITS_CHECK_MATCHES"] = "1"  # in processes that tests start too: cache/origins.py
os.environ["SAMEBITS_MEMORY"] = "512M"  # of each model, so that no test depends on the machine's memory

if sys.dont_write_bytecode:  # else every process that a test starts would compile all that it imports
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / "build" / "bytecode")
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    number, count = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.sched_setaffinity(0, cores[number::count] or [cores[number % len(cores)]])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and put folders of them first: one that is started last leaves the other processes idle."""
    names, tests, slow = slow_names(), Path(__file__).parent, pytest.mark.slow
    paths = {path: path.relative_to(tests).as_posix() for path in {item.path for item in items}}
    for item in items:
        inner = item.nodeid.partition("::")[2].partition("[")[0]
        if item.path.parent.name in FOLDERS or f"{paths[item.path]}::{inner}" in names:
            item.add_marker(slow)
    items.sort(key=lambda item: item.path.parent.name not in FOLDERS)


def pytest_collection_finish() -> None:
    """Ten thousand tests and all modules stay to the end: no collection of garbage need look at them again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Every process starts with a stretch of the tests, and takes from the others' when it is done."""
    if config.getoption("dist") != "load":  # what -n alone asks for
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
