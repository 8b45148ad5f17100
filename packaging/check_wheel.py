"""Proves a wheel: what is in it, and that it alone, in a fresh environment, verifies ops and lets a model answer.

    python packaging/check_wheel.py dist/samebits-0.1.0-….whl [PYTHON ...]

Raises, or exits non-zero, at the first thing that does not hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "tests" / "models" / "data" / "llama" / "model-f32.gguf"
OPS = ("rms_norm", "paged_attention", "sample")
CODE = (".py", ".so", ".pyd", ".wgsl", ".cu", ".cuh")
KINDS = (*CODE, ".html", ".css", ".js", ".svg", ".typed")  # that a package of ours may hold
SETS_OF_THIS_CPU = "from samebits.kernels.cpp import native; print(*native().isas())"


class BadWheel(Exception):
    """What a wheel has and should not, or lacks."""


def check_contents(wheel: Path) -> None:
    """Only the package and its metadata are in it, and every file of the package."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")}
    ours = ("samebits/", "samebits.libs/")  # auditwheel puts what it copies into the second
    if odd := [name for name in inside if not name.startswith(ours) or PurePosixPath(name).suffix not in KINDS]:
        raise BadWheel(f"{wheel.name} holds {', '.join(sorted(odd)[:5])}")
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = {name.removeprefix("src/") for name in tracked.stdout.split() if not name.endswith((".cpp", ".h"))}
    if missing := wanted - inside:
        raise BadWheel(f"{wheel.name} lacks {', '.join(sorted(missing)[:5])}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(inside)} files")


def check_sdist(archive: Path) -> None:
    """Raise BadWheel unless every tracked file that a build or the tests need is in the source archive."""
    with tarfile.open(archive) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    if missing := [name for name in tracked if name and not name.startswith(".") and name not in inside]:
        raise BadWheel(f"{archive.name} lacks {', '.join(missing[:5])}")
    print(
        f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB, {len(inside)} files, tests and golden files among them"
    )


def check_installed(wheel: Path, python: str) -> None:
    """In an environment with nothing but the wheel and what it requires: ops verify, and a model answers.

    The native module names the kernels of all instruction sets of its architecture (runtime/isa.cpp), so it loads only
    where all are in it; those that this CPU has are run.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        programs = next(p for p in (Path(folder, "venv", name) for name in ("bin", "Scripts")) if p.exists())

        def output(program: str, *arguments: str, isa: str = "") -> str:
            command = [str(programs / program), *arguments]
            settings = os.environ | {"SAMEBITS_CPU_ISA": isa}
            done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
            if done.returncode:
                raise BadWheel(
                    f"{wheel.name}: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
                )
            return done.stdout

        output("python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", str(wheel))
        sets = output("python", "-c", SETS_OF_THIS_CPU).split()
        for isa in sets:
            output("samebits", "verify", "--backend", "cpu", "--tier", "portable", "--op", "gemm_q8", isa=isa)
        for op in OPS:
            output("samebits", "verify", "--backend", "cpu", "--tier", "portable", "--op", op)
        answer = output(
            "samebits", "generate", "--model", str(MODEL), "--tokens", "1,2,3", "--max-tokens", "4", "--json"
        )
        json.loads(answer)
    print(f"  {python}: verified {', '.join(OPS)}, and gemm_q8 on {', '.join(sets)}; a model answered")


def checked(wheel: Path, pythons: list[str]) -> None:
    """Raises where the wheel is not what it should be, or does not work in one of these Pythons."""
    check_contents(wheel)
    for python in pythons:
        check_installed(wheel, python)


if __name__ == "__main__":
    checked(Path(sys.argv[1]).resolve(), sys.argv[2:] or [sys.executable])
