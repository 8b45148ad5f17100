"""The build's progress, read from pip's output."""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from samebits.core import installing

PATH = Path(__file__).parents[1] / "packaging" / "install.py"


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packaging_install", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LINES = (
    "Looking in indexes: https://pypi.org/simple",
    "  Installing build dependencies: started",
    "  [0/2] Re-checking globbed directories...",
    "  [1/27] Building CXX object CMakeFiles/kernels.dir/src/samebits/kernels/cpp/runtime/amx.cpp.o",
    "  [26/27] Building CXX object CMakeFiles/kernels.dir/src/samebits/kernels/cpp/isa/avx512.cpp.o",
    "  [27/27] Linking CXX shared module _native.cpython-311-x86_64-linux-gnu.so",
    "Collecting numpy>=2.0",
    "Collecting click>=8.1",
    "Installing collected packages: numpy, click, samebits",
)


def test_lines_without_a_terminal_say_what_is_compiled_and_how_far_it_is(install: ModuleType) -> None:
    out = io.StringIO()
    progress = install.Progress(out)
    for line in LINES:
        progress.read(line)
    progress.close()
    assert [line.split(maxsplit=1)[1] for line in out.getvalue().splitlines()] == [
        "fetching the build tools",
        "compiled 1 of 27: amx; instruction sets take the longest",
        "compiled 26 of 27: avx512",
        "compiled 27 of 27: _native.cpython-311-x86_64-linux-gnu.so",
        "fetching dependencies",
        "installing dependencies",
    ]


def test_a_terminal_keeps_one_line_and_clears_it(install: ModuleType) -> None:
    out = Terminal()
    progress = install.Progress(out)
    for line in LINES:
        progress.read(line)
    progress.close()
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_compiler_that_is_there_must_succeed(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("SAMEBITS_REQUIRE_NATIVE", raising=False)
    monkeypatch.setattr(installing.shutil, "which", lambda name: None)
    assert "SAMEBITS_REQUIRE_NATIVE" not in install.build_settings()
    monkeypatch.setenv("CXX", "")
    assert "SAMEBITS_REQUIRE_NATIVE" not in install.build_settings()
    monkeypatch.setenv("CXX", "/opt/c++")
    assert install.build_settings()["SAMEBITS_REQUIRE_NATIVE"] == "1"
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(installing.shutil, "which", lambda name: "/usr/bin/c++" if name == "c++" else None)
    assert install.build_settings()["SAMEBITS_REQUIRE_NATIVE"] == "1"
    monkeypatch.setenv("SAMEBITS_REQUIRE_NATIVE", "0")
    assert install.build_settings()["SAMEBITS_REQUIRE_NATIVE"] == "0"


@pytest.mark.skipif(os.name == "nt", reason="the package manager is a shell script")
def test_an_interrupted_install_ends_in_one_line(tmp_path: Path) -> None:
    """A Ctrl-C reaches the installer and pip, which a package of its name stands for."""
    (tmp_path / "packaging").mkdir()
    shutil.copy(PATH, tmp_path / "packaging")
    (tmp_path / "src").symlink_to(PATH.parents[1] / "src")
    (tmp_path / "pip.py").write_text("import signal; print('Collecting numpy', flush=True); signal.pause()\n")
    command = [sys.executable, str(tmp_path / "packaging" / PATH.name)]
    settings = os.environ | {"PYTHONPATH": str(tmp_path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=settings, start_new_session=True, **pipes) as process:
        lines = iter(process.stdout or ())
        assert "fetching dependencies" in next(line for line in lines if "fetching" in line)
        os.killpg(process.pid, signal.SIGINT)
        rest = list(lines)
    assert process.returncode == 130
    assert rest == ["\n", "error: interrupted; run the same command to go on\n"]
