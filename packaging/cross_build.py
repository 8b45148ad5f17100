"""Cross-builds wheels for Windows and macOS on any machine, with the clang of the package `ziglang`.

    python packaging/cross_build.py --dist dist [win_amd64 ...]

Each wheel serves Python 3.12 and later (the stable ABI). CMakeLists.txt states the instruction sets and flags. A Python
of these systems cannot be installed from a package index, so a wheel is examined (check_cross.py) and never imported.
"""

from __future__ import annotations

import argparse
import ast
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "cross"
KERNELS = ROOT / "src" / "samebits" / "kernels" / "cpp"
TOKENIZERS = ROOT / "src" / "samebits" / "loaders" / "cpp"
STABLE_ABI = ("cp312-abi3", "0x030C0000")  # the tag of wheels, and Py_LIMITED_API


@dataclass(frozen=True)
class Target:
    """A platform that wheels are cross-built for."""

    platform: str  # in a wheel's name
    zig: str
    architecture: str  # x86_64 or aarch64

    @property
    def is_windows(self) -> bool:
        return "windows" in self.zig

    @property
    def suffix(self) -> str:
        return ".pyd" if self.is_windows else ".abi3.so"

    @property
    def folder(self) -> Path:
        return BUILD / self.platform

    @property
    def kernel_objects(self) -> Path:
        return self.folder / "kernels"


TARGETS = {
    target.platform: target
    for target in (
        Target("win_amd64", "x86_64-windows-gnu", "x86_64"),
        Target("macosx_11_0_arm64", "aarch64-macos.11.0", "aarch64"),
        Target("macosx_11_0_x86_64", "x86_64-macos.11.0", "x86_64"),
    )
}


class CannotBuild(Exception):
    """Why cross-building is impossible here, in one line."""


def stated(pattern: str) -> list[str]:
    """Return the words that CMakeLists.txt states in the first group of `pattern`."""
    found = re.search(pattern, (ROOT / "CMakeLists.txt").read_text(), re.M)
    if found is None:
        raise CannotBuild(f"CMakeLists.txt has no {pattern!r}")
    return found[1].split()


def instruction_sets(architecture: str) -> list[str]:
    """Return the names of a target's instruction sets: those that CMakeLists.txt builds on every system."""
    line = r"list\(APPEND SETS (avx2[^)]*)\)" if architecture == "x86_64" else r"list\(APPEND SETS (neon[^)]*)\)"
    return ["scalar", *stated(line)]


def set_flags(name: str) -> list[str]:
    """Return the flags that an instruction set's file states, as zig spells them."""
    lines = (KERNELS / "isa" / f"{name}.cpp").read_text().splitlines()
    flags = [
        word for line in lines if line.startswith("// flags: ") for word in line.removeprefix("// flags: ").split()
    ]
    return [as_zig_spells(flag) for flag in flags if flag != "-fno-schedule-insns"]  # gcc's alone


def as_zig_spells(flag: str) -> str:
    """Return a flag with -march=armv8.2-a+dotprod as -mcpu=generic+v8_2a+dotprod."""
    found = re.fullmatch(r"-march=armv8(?:\.(\d))?-a((?:\+\w+)*)", flag)
    if found is None:
        return flag
    version = f"+v8_{found[1]}a" if found[1] else ""
    return f"-mcpu=generic{version}{found[2]}"


def zig(*arguments: str | Path, folder: Path | None = None) -> None:
    """Run zig. Raise CannotBuild with its last lines if it fails."""
    command = [sys.executable, "-m", "ziglang", *map(str, arguments)]
    settings = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(BUILD / "zig"), "ZIG_LOCAL_CACHE_DIR": str(BUILD / "zig")}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"{' '.join(command[2:])}\n{done.stderr[-4000:]}")


def compiler(target: Target) -> tuple[str, ...]:
    """Return the words of zig's C++ compiler for a target, with the flags that the bits depend on."""
    exact = [flag for flag in stated(r"^add_compile_options\((-ffp[^)]*)\)") if not flag.startswith("-W")]
    return ("c++", "-target", target.zig, "-std=c++17", *exact, "-fno-sanitize=all")


def compile_all(jobs: list[tuple[Path, list[str | Path]]], target: Target) -> None:
    """Compile (object, arguments), as many at a time as there are processors."""
    for path, _ in jobs:
        path.parent.mkdir(parents=True, exist_ok=True)

    def one(job: tuple[Path, list[str | Path]]) -> None:
        zig(*compiler(target), "-c", *job[1], "-o", job[0])
        print(f"  {target.platform}: {job[0].relative_to(target.folder)}", flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, jobs))


def build_kernels(target: Target) -> list[Path]:
    """Return the objects of all kernels: the runtime and one for each instruction set."""
    shared: list[str | Path] = ["-fno-stack-protector", "-fvisibility=hidden", "-fPIC"]
    jobs = [(source, []) for source in sorted((KERNELS / "runtime").glob("*.cpp"))]
    jobs += [(KERNELS / "isa" / f"{name}.cpp", set_flags(name)) for name in instruction_sets(target.architecture)]
    compiled = [(target.kernel_objects / f"{source.name}.o", [*shared, *flags, source]) for source, flags in jobs]
    compile_all(compiled, target)
    return [path for path, _ in compiled]


def python_of_headers() -> str:
    """Return a Python 3.12 or later, whose headers and list of the stable ABI are taken."""
    for version in ("3.12", "3.13", "3.14"):
        command = shutil.which(f"python{version}")
        if command and subprocess.run([command, "-c", ""], capture_output=True).returncode == 0:
            return command
    raise CannotBuild("needs Python 3.12 or later for the headers of the stable ABI")


@cache
def answer(code: str) -> str:
    """Return what a Python with the headers prints for a line of code."""
    return subprocess.run([python_of_headers(), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@cache
def stable_abi() -> frozenset[str]:
    """Return the names in python3.dll that the stable ABI promises, from the test that Python has of them."""
    path = Path(answer("import sysconfig; print(sysconfig.get_path('stdlib'))"), "test", "test_stable_abi_ctypes.py")
    if not path.exists():
        raise CannotBuild(f"no {path}, which lists the stable ABI: needs a Python with its tests")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SYMBOL_NAMES":
            return frozenset(ast.literal_eval(node.value))
    raise CannotBuild(f"{path} lists no SYMBOL_NAMES")


def python_headers(target: Target) -> Path:
    """Return a folder with the headers of Python, and a pyconfig.h that fits the target."""
    folder = target.folder / "include"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(answer("import sysconfig; print(sysconfig.get_path('include'))"), folder)
    shutil.copy(ROOT / "packaging" / "cross" / "pyconfig.h", folder)
    return folder


def import_library(target: Target) -> Path:
    """Return an import library of python3.dll, made from the names of the stable ABI."""
    definition = target.folder / "python3.def"
    definition.write_text("LIBRARY python3.dll\nEXPORTS\n" + "\n".join(sorted(stable_abi())) + "\n")
    zig("dlltool", "-m", "i386:x86-64", "-d", definition, "-l", target.folder / "python3.lib")
    return target.folder / "python3.lib"


def build_modules(target: Target, kernels: list[Path]) -> dict[str, Path]:
    """Return the extension modules by their places in the package."""
    import nanobind

    nano = Path(nanobind.__file__).parent
    includes = [python_headers(target), nano / "include", nano / "ext" / "robin_map" / "include", KERNELS]
    flags: list[str | Path] = [f"-I{folder}" for folder in includes]
    flags += [f"-DPy_LIMITED_API={STABLE_ABI[1]}", "-DNDEBUG", "-DNB_COMPACT_ASSERTIONS", "-fno-strict-aliasing"]
    flags += ["-fno-stack-protector", "-fvisibility=hidden", "-fPIC", "-w"]
    flags += ["-include", "stdio.h"]  # nanobind uses it, and the stable ABI's headers include it on Linux alone
    sources = {"nanobind": nano / "src" / "nb_combined.cpp", "_native": KERNELS / "module.cpp"}
    sources |= {"_encoding": TOKENIZERS / "module.cpp"}
    objects = {name: target.folder / f"{name}.o" for name in sources}
    compile_all([(objects[name], [*flags, source]) for name, source in sources.items()], target)
    modules = {}
    for place, parts in {
        "samebits/kernels/cpp/_native": [objects["_native"], objects["nanobind"], *kernels],
        "samebits/loaders/_encoding": [objects["_encoding"], objects["nanobind"]],
    }.items():
        path = target.folder / f"{Path(place).name}{target.suffix}"
        named = ["-undefined", "dynamic_lookup", "-install_name", f"@rpath/{path.name}"]
        system: list[str | Path] = [import_library(target)] if target.is_windows else [*named]
        zig("c++", "-target", target.zig, "-shared", "-s", "-o", path, *parts, *system)
        modules[f"{place}{target.suffix}"] = path
    return modules


def pure_wheel(folder: Path) -> Path:
    """Return the wheel without native parts."""
    settings = ["-C", "wheel.cmake=false", "-C", "wheel.py-api=py3"]
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "wheel", "--no-deps", *settings]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*-py3-none-any.whl")
    return wheel


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def add_modules(pure: Path, modules: dict[str, Path], target: Target, dist: Path) -> Path:
    """Write the wheel of a target: the pure one with its modules and tags. Return its path."""
    tag = f"{STABLE_ABI[0]}-{target.platform}"
    wheel = dist / pure.name.replace("py3-none-any", tag)
    with zipfile.ZipFile(pure) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    (facts,) = [name for name in files if name.endswith(".dist-info/WHEEL")]
    text = files[facts].decode().replace("Tag: py3-none-any", f"Tag: {tag}")
    files[facts] = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
    files |= {name: path.read_bytes() for name, path in modules.items()}
    record = facts.replace("/WHEEL", "/RECORD")
    lines = [record_line(name, data) for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return wheel


def build_wheels(targets: list[Target], dist: Path) -> list[Path]:
    """Cross-build the wheel of each target into `dist`. Return their paths."""
    with tempfile.TemporaryDirectory() as folder:
        pure = pure_wheel(Path(folder))
        return [add_modules(pure, build_modules(t, build_kernels(t)), t, dist) for t in targets]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder that wheels are written to")
    parser.add_argument("--kernels-only", action="store_true", help="compile the kernels, and make no wheel")
    parser.add_argument("platforms", nargs="*", default=[], help=f"of {', '.join(TARGETS)}; all if absent")
    given = parser.parse_args()
    if unknown := set(given.platforms) - set(TARGETS):
        parser.error(f"unknown platform {min(unknown)}; known: {', '.join(TARGETS)}")
    targets = [TARGETS[name] for name in given.platforms or TARGETS]
    try:
        if given.kernels_only:
            for target in targets:
                build_kernels(target)
            return 0
        from check_cross import check_cross_wheel

        given.dist.mkdir(parents=True, exist_ok=True)
        for wheel in build_wheels(targets, given.dist):
            check_cross_wheel(wheel)
    except CannotBuild as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
