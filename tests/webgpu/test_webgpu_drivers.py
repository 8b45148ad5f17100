"""Other drivers and other numbers of lanes give the reference's bits: each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from small_cases import WITH_KERNELS, largest_served, sha256

from samebits.backends.interface import Backend
from samebits.ops import OPS, evaluate

SCRIPT = Path(__file__).parent / "small_cases.py"


@dataclass(frozen=True)
class Driver:
    """A driver of Vulkan.

    files      where its description may lie, see VK_DRIVER_FILES
    shows      part of the device's name by which one sees that it was this one
    settings   environment variables
    """

    files: str
    shows: str
    package: str
    settings: dict[str, str] = field(default_factory=dict)


LAVAPIPE = ("/usr/share/vulkan/icd.d/lvp_icd*.json", "mesa-vulkan-drivers")
DRIVERS = {
    f"lavapipe-{bits}": Driver(LAVAPIPE[0], f"{bits} bits", LAVAPIPE[1], {"LP_NATIVE_VECTOR_WIDTH": str(bits)})
    for bits in (128, 256)  # 4 lanes and 8
}
DRIVERS["swiftshader"] = Driver("/usr/lib/chromium/vk_swiftshader_icd.json", "SwiftShader", "chromium")


def environment(driver: Driver) -> dict[str, str]:
    """The variables of a process that has this driver and no other; the test is skipped where it is missing."""
    pattern = Path(driver.files)
    found = sorted(pattern.parent.glob(pattern.name)) if pattern.parent.is_dir() else []
    if not found:
        pytest.skip(f"no {driver.files}; Debian's {driver.package} has it")
    chosen = {"VK_DRIVER_FILES": str(found[0]), "VK_ICD_FILENAMES": str(found[0])}  # the second for older loaders
    return {**os.environ, **chosen, **driver.settings}


@pytest.fixture(scope="module")
def wanted(webgpu: Backend) -> dict[str, str]:
    """The reference's hashes by op and case."""
    cases = {op: largest_served(webgpu, OPS[op]) for op in WITH_KERNELS}
    return {f"{op} {case_id}": sha256(evaluate(bound)) for op, (case_id, bound) in cases.items()}


@pytest.mark.parametrize("name", DRIVERS)
def test_the_reference_bits_on_every_driver(webgpu: Backend, wanted: dict[str, str], name: str) -> None:
    driver = DRIVERS[name]
    if driver.shows in webgpu.probe().device:
        pytest.skip("all other tests of this folder run on it")
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, env=environment(driver), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert driver.shows in answer["device"]
    assert answer["hashes"] == wanted
