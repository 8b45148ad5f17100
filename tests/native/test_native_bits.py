"""Every instruction set against the others and against the reference, in C++ and on an emulated CPU of aarch64."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import native_bits
import pytest
from native_bits import (
    ARM_CPUS,
    BUILD,
    SETS,
    WINDOWS_KERNELS,
    Results,
    arm_lines,
    faults,
    machine,
    missing_for_arm,
    missing_for_windows,
    module_objects,
    native_lines,
    results_of,
    windows_lines,
)

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or not any(shutil.which(c) for c in ("c++", "g++")),
    reason="no make, or no C++ compiler",
)


@cache
def native_results() -> Results:
    native_bits.forget_cases()
    return results_of(native_lines())


@cache
def arm_results() -> Results:
    if reason := missing_for_arm():
        pytest.skip(reason)
    return results_of(arm_lines(native_results()))


def test_sets_of_this_machine_agree() -> None:
    assert faults(native_results()) == []


def test_sets_of_aarch64_agree_with_them_and_a_cpu_has_those_whose_instructions_it_has() -> None:
    both = {name: by_set | arm_results().get(name, {}) for name, by_set in native_results().items()}
    assert faults(both) == []
    sets = {cpu: [who.split()[0] for who in arm_results()["dot_small"] if who.endswith(cpu)] for cpu in ARM_CPUS}
    assert sets == {
        "max,sve256=on": ["sve256", "neon_i8mm", "neon_dotprod", "neon", "scalar"],
        "max,sve512=on": ["neon_i8mm", "neon_dotprod", "neon", "scalar"],
        "max,sve128=on": ["neon_i8mm", "neon_dotprod", "neon", "scalar"],
        "cortex-a76": ["neon_dotprod", "neon", "scalar"],
        "cortex-a53": ["neon", "scalar"],
    }


def test_sets_of_the_windows_wheel_agree_with_them_under_wine() -> None:
    """The wheel's own kernels, in programs for Windows. Its kernels must have been built: make native-test-windows."""
    if reason := missing_for_windows():
        pytest.skip(reason)
    if not (WINDOWS_KERNELS / "avx2.cpp.o").exists():
        pytest.skip("the kernels of the Windows wheel are not built: make native-test-windows builds them in minutes")
    found = results_of(windows_lines())
    assert faults({name: by_set | native_results().get(name, {}) for name, by_set in found.items()}) == []
    sets = {who.split()[0] for by_set in found.values() for who in by_set}
    assert sets == {who.split()[0] for by_set in native_results().values() for who in by_set}


def test_a_set_defines_nothing_that_another_could_be_linked_to() -> None:
    """A function outside the set's namespace may be taken by the linker for all sets, instructions and all."""
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    native_results()
    module = module_objects()
    for isa in SETS.get(machine(), "scalar").split():
        path = next(module.rglob(f"{isa}.cpp.o")) if module else BUILD / machine() / f"set_{isa}.o"
        text = subprocess.run(["nm", "-C", "--defined-only", str(path)], capture_output=True, text=True).stdout
        assert f"samebits::{isa}_table" in text
        shared = [line[19:] for line in text.splitlines() if line[17:18] in "WT"]
        assert [s for s in shared if f"samebits::{isa}::" not in s] == []


def test_what_differs_is_named() -> None:
    assert faults({"add": {"avx2 on x": "ab", "neon on max": "cd"}}) == ["add: ab by avx2 on x, cd by neon on max"]
    assert faults({"op:gemm": {"avx2 on x": "ok", "neon on max": "gemm/small: result 0"}}) == [
        "op:gemm, neon on max: gemm/small: result 0"
    ]
    assert faults({"add": {"avx2 on x": "ab", "neon on max": "ab"}, "op:gemm": {"avx2 on x": "ok"}}) == []
