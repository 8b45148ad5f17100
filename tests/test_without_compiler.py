"""Without a C++ compiler, Samebits installs as pure Python, and the build's output does not reach the user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = [found for name in ("cmake", "ninja") if (found := shutil.which(name))]
pytestmark = [
    pytest.mark.skipif(len(TOOLS) < 2, reason="no cmake, or no ninja"),
    pytest.mark.skipif(sys.platform == "win32", reason="a link to a program needs rights on Windows"),
]
pytest.importorskip("scikit_build_core", reason="the build's tools are not installed")
pytest.importorskip("setuptools_scm", reason="the build's tools are not installed")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an archive of the sources holds, without git."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder)
    (folder / "packaging").mkdir()
    shutil.copy(ROOT / "packaging" / "links.py", folder / "packaging")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return folder


def pip_wheel(sources: Path, dist: Path, path: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `pip wheel` with a PATH that has cmake and ninja, and no compiler."""
    path.mkdir()
    for tool in TOOLS:
        (path / Path(tool).name).symlink_to(tool)
    command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-build-isolation", "--no-deps"]
    command += ["--no-index", "--wheel-dir", str(dist), str(sources)]
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "SAMEBITS_REQUIRE_NATIVE")}
    environment |= {"PATH": str(path), **settings}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_a_wheel_is_pure_python_and_says_nothing_of_cmake(sources: Path, tmp_path: Path) -> None:
    done = pip_wheel(sources, tmp_path, tmp_path / "bin")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "CMake" not in done.stdout + done.stderr
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        assert b"__version__" in archive.read("samebits/_version.py")
    assert "samebits/backends/reference.py" in names
    assert [name for name in names if name.endswith((".so", ".pyd", ".cpp"))] == []


def test_a_required_native_part_ends_in_the_compiler_s_error(sources: Path, tmp_path: Path) -> None:
    done = pip_wheel(sources, tmp_path, tmp_path / "bin", SAMEBITS_REQUIRE_NATIVE="1")
    assert done.returncode != 0
    assert "CMAKE_CXX_COMPILER" in done.stdout + done.stderr
