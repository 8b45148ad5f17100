"""Builds the C++ programs of this folder, runs them, compares what the instruction sets computed.

`python native_bits.py` tries all sets that can be run here; with `--emulated`, those of aarch64 alone; with
`--windows`, those of the Windows wheel alone, as programs for Windows under wine; with `--sanitize address,undefined`,
all of this machine and more under a sanitizer. Needs make and a C++ compiler; for other CPUs of aarch64 also an
emulator (Debian's qemu-user), and on another architecture a cross compiler (g++-aarch64-linux-gnu); for Windows PyPI's
ziglang and Debian's wine.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from native_cases import write_cases

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "native"
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")  # the same for all test processes of a run
CASES = BUILD / f"cases{RUN}.bin"
SETS = {"x86_64": "scalar avx2 avx2_vnni avx512", "aarch64": "scalar neon neon_dotprod neon_i8mm"}
if sys.platform == "linux":
    SETS["aarch64"] += " sve256"
ARM_COMPILER, ARM_EMULATOR, ARM_LIBRARIES = "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"
# With all instructions and vectors of 256 bits, with longer and shorter ones, without the matrix product, without the
# dot product; ops run on the first, primitives on all.
ARM_CPUS = ("max,sve256=on", "max,sve512=on", "max,sve128=on", "cortex-a76", "cortex-a53")

CROSS_BUILD = HERE.parent.parent / "packaging" / "cross_build.py"
WINDOWS_KERNELS = BUILD.parent / "cross" / "win_amd64" / "kernels"  # where CROSS_BUILD leaves the wheel's objects
ZIG_CACHE = WINDOWS_KERNELS.parents[1] / "zig"
WINDOWS_COMPILER = f"{sys.executable} -m ziglang c++ -target x86_64-windows-gnu -fno-sanitize=all"
WINDOWS_SECONDS = 900

Results = dict[str, dict[str, str]]  # primitive or op -> set and CPU -> hash, "ok", or what is wrong


def machine() -> str:
    """The architecture of this machine, by the name Linux has for it."""
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


def missing_for_arm() -> str | None:
    """Why sets of aarch64 cannot be tried by emulation here."""
    needed = (ARM_EMULATOR,) if machine() == "aarch64" else (ARM_COMPILER, ARM_EMULATOR)
    absent = [tool for tool in needed if shutil.which(tool) is None]
    return f"{', '.join(absent)} not found" if absent else None


def missing_for_windows() -> str | None:
    """Return why programs for Windows cannot be built and run here, or None if they can."""
    if machine() != "x86_64":
        return f"wine runs programs of x86-64, and this is {machine()}"
    absent = [] if importlib.util.find_spec("ziglang") else ["PyPI's ziglang"]
    absent += [] if importlib.util.find_spec("nanobind") else ["PyPI's nanobind"]
    absent += [] if shutil.which("wine") else ["wine"]
    return f"{', '.join(absent)} not found" if absent else None


@contextmanager
def alone() -> Iterator[None]:
    """Test processes that build in the same folder go one after another."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def forget_cases() -> None:
    """Cases of earlier runs; another test process may be reading this one's."""
    with alone():
        for path in BUILD.glob("cases*.bin"):
            if path != CASES or not RUN:
                path.unlink()


def module_objects() -> Path | None:
    """The folder with the kernels' objects that the installed module was linked of, where it was built in this tree."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next(iter(sorted(BUILD.parent.glob(f"{tag}-*/CMakeFiles/kernels.dir"))), None)


def build(
    architecture: str,
    programs: tuple[str, ...],
    flags: str,
    folder: str,
    module: Path | None = None,
    compiler: str | None = None,
) -> list[str]:
    """Build programs of this folder where anything they are made of has changed. Return their paths.

    module    a folder with objects of kernels; without it they are compiled with the same flags
    compiler  the C++ compiler; make's own if absent, or a cross compiler for another architecture
    """
    out = BUILD / folder
    targets = [str(out / program) for program in programs]
    jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    chosen = compiler or (ARM_COMPILER if architecture != machine() else "")
    settings = [f"OUT={out}", f"FLAGS={flags}", f"SETS={SETS.get(architecture, 'scalar')}"]
    settings += [f"CXX={chosen}"] if chosen else []
    settings += [f"MODULE={module}"] if module else []
    with alone():
        cached = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(ZIG_CACHE), "ZIG_LOCAL_CACHE_DIR": str(ZIG_CACHE)}
        subprocess.run(["make", "-s", "-C", str(HERE), f"-j{jobs}", *settings, *targets], check=True, env=cached)
        if not CASES.exists():
            write_cases(CASES)
    return targets


def output(*command: str) -> str:
    """What a command prints; RuntimeError with it where the command fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def native_program() -> str:
    """`bits` for this machine, with the module's own kernels where they can be had."""
    module = module_objects()
    return build(machine(), ("bits",), "-O0", f"{machine()}-module" if module else machine(), module)[0]


def native_lines() -> dict[str, str]:
    """What `bits` prints here, by the machine's name."""
    return {machine(): output(native_program(), str(CASES))}


def arm_lines(native: Results) -> dict[str, str]:
    """What `bits` prints on emulated CPUs of aarch64, by their names.

    native: of a real CPU; the ops of its sets are left out, as the same program would run them.
    """
    if machine() == "aarch64":
        program, libraries = native_program(), []
    else:
        program, libraries = build("aarch64", ("bits",), "-O1", "aarch64")[0], ["-L", ARM_LIBRARIES]
    tried = {who.split()[0] for by_set in native.values() for who in by_set if who.endswith(" on aarch64")}
    cases = dict.fromkeys(ARM_CPUS, os.devnull) | {ARM_CPUS[0]: str(CASES)}
    given = ["--alternate", *tried]  # emulation is slow; a machine's own sets run all four ways
    return {cpu: output(ARM_EMULATOR, "-cpu", cpu, *libraries, program, cases[cpu], *given) for cpu in ARM_CPUS}


def windows_output(program: str, *arguments: str) -> str:
    """Return what a program of this folder prints on Windows, which wine plays."""
    with alone():
        command = [sys.executable, str(CROSS_BUILD), "--kernels-only", "win_amd64"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (path,) = build("x86_64", (program,), "-O0", "x86_64-windows", WINDOWS_KERNELS, WINDOWS_COMPILER)
    shutil.copy(path, f"{path}.exe")
    settings = os.environ | {"WINEPREFIX": str(BUILD / "wine"), "WINEDEBUG": "-all", "DISPLAY": ""}
    command = ["wine", f"{path}.exe", *arguments]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=WINDOWS_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def windows_lines() -> dict[str, str]:
    """Return what `bits` prints on Windows, by the name windows."""
    return {"windows": windows_output("bits", str(CASES))}


def results_of(lines: dict[str, str]) -> Results:
    """What several runs printed, together."""
    found: Results = {}
    for cpu, text in lines.items():
        for line in text.splitlines():
            isa, name, result = line.split(maxsplit=2)
            found.setdefault(name, {})[f"{isa} on {cpu}"] = result
    return found


def faults(found: Results) -> list[str]:
    """A line for each op that is not ok, and for each primitive that is not the same in all sets."""
    lines = []
    for name, by_set in found.items():
        words = [f"{name}, {who}: {result}" for who, result in by_set.items() if " " in result]
        lines += words
        if not words and len(set(by_set.values())) > 1:
            lines.append(f"{name}: " + ", ".join(f"{result} by {who}" for who, result in by_set.items()))
    return lines


def sanitize(kinds: str) -> None:
    """Runs all programs under sanitizers; raises where one reports. Not optimized: that takes gcc minutes."""
    flags = f"-O0 -g -fsanitize={kinds} -fno-sanitize-recover=all"
    # tokens that spoiled indices put into one cell race, which append leaves to its caller to exclude
    programs = ("bits", "stress") if kinds == "thread" else ("bits", "spoil", "stress")
    for program in build(machine(), programs, flags, kinds.replace(",", "-")):
        text = output(program, str(CASES))
        wrong = faults(results_of({machine(): text})) if program.endswith("bits") else []
        if wrong:
            raise RuntimeError("\n".join(wrong))
        print(f"{Path(program).name}: clean under {kinds}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sanitize", metavar="KINDS")
    parser.add_argument("--emulated", action="store_true", help="try the sets of aarch64 alone, on emulated CPUs")
    parser.add_argument("--windows", action="store_true", help="try the sets of the Windows wheel alone, under wine")
    given = parser.parse_args()
    forget_cases()
    if given.sanitize:
        sanitize(given.sanitize)
        return 0
    if given.windows:
        if missing := missing_for_windows():
            raise SystemExit(f"programs for Windows cannot be run: {missing}")
        print(windows_output("stress").strip())
        return reported(results_of(native_lines() | windows_lines()))
    reason = missing_for_arm()
    if given.emulated and reason:
        raise SystemExit(f"aarch64 cannot be emulated: {reason}")
    lines = {} if given.emulated else native_lines()
    found = results_of(lines | ({} if reason else arm_lines(results_of(lines))))
    if reason:
        print(f"aarch64 was not emulated: {reason}")
    return reported(found)


def reported(found: Results) -> int:
    """Print what differs, or that nothing does. Return the exit status."""
    sets = sorted({who for by_set in found.values() for who in by_set})
    wrong = faults(found)
    print("\n".join(wrong) or f"{len(found)} primitives and ops have the same bits in {', '.join(sets)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
