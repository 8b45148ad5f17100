"""What differs on Windows, with Windows simulated: locks of files, groups of processes, the encoding of output."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from samebits.core import systems

SOURCE = Path(__file__).parents[2] / "src"


class Msvcrt(ModuleType):
    """Windows' locks of bytes, held by number of the first open file that asks."""

    LK_NBLCK = 2

    def __init__(self, num_refusals: int) -> None:
        super().__init__("msvcrt")
        self.num_refusals, self.locked = num_refusals, []

    def locking(self, descriptor: int, mode: int, num_bytes: int) -> None:
        if self.num_refusals:
            self.num_refusals -= 1
            raise PermissionError(13, "Permission denied")
        self.locked.append((mode, num_bytes))


@pytest.mark.parametrize("num_refusals", [0, 2])
def test_windows_locks_wait_until_the_file_is_free(
    num_refusals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = Msvcrt(num_refusals)

    def find(name: str) -> Any:
        if name == "fcntl":
            raise ImportError(name)
        return locks

    monkeypatch.setattr(systems, "import_module", find)
    monkeypatch.setattr(systems, "LOCK_POLL_SECONDS", 0.001)
    with open(tmp_path / "lock", "w", encoding="utf-8") as file:
        systems.lock_file(file)
    assert locks.locked == [(Msvcrt.LK_NBLCK, 1)]
    assert locks.num_refusals == 0


@pytest.mark.skipif(sys.platform == "win32", reason="flock is of POSIX")
def test_a_lock_is_held_until_the_file_is_closed(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []
    first = open(path, "w", encoding="utf-8")  # noqa: SIM115
    systems.lock_file(first)

    def second() -> None:
        with open(path, "w", encoding="utf-8") as file:
            systems.lock_file(file)
            order.append("second")

    waiting = threading.Thread(target=second)
    waiting.start()
    waiting.join(0.05)
    order.append("first closes")
    first.close()
    waiting.join(10)
    assert order == ["first closes", "second"]


def test_a_process_has_a_group_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems.sys, "platform", "win32")
    assert systems.own_group() == {"creationflags": 0x200}
    monkeypatch.setattr(systems.sys, "platform", "darwin")
    assert systems.own_group() == {"start_new_session": True}


def test_output_on_windows_takes_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    out, error = (io.TextIOWrapper(io.BytesIO(), encoding="cp1252") for _ in range(2))
    monkeypatch.setattr(systems.sys, "stdout", out)
    monkeypatch.setattr(systems.sys, "stderr", error)
    monkeypatch.setattr(systems.sys, "platform", "linux")
    systems.use_utf8()
    with pytest.raises(UnicodeEncodeError):
        print("\N{GREEK SMALL LETTER ALPHA}", file=out, flush=True)
    monkeypatch.setattr(systems.sys, "platform", "win32")
    systems.use_utf8()
    print("\N{GREEK SMALL LETTER ALPHA}\udc80", file=out, flush=True)
    assert out.buffer.getvalue().decode("utf-8").strip() == "\N{GREEK SMALL LETTER ALPHA}?"  # type: ignore[attr-defined]


def test_input_on_windows_is_read_as_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve"
    given = io.TextIOWrapper(io.BytesIO(text.encode() + b"\xff"), encoding="cp1252")
    monkeypatch.setattr(systems.sys, "stdin", given)
    monkeypatch.setattr(systems.sys, "platform", "win32")
    systems.use_utf8()
    assert given.read() == text + "\udcff"


def test_files_of_text_state_their_encoding() -> None:
    """Without one, Windows reads and writes another than UTF-8. Triton's kernels run on Linux alone."""
    command = [sys.executable, "-m", "ruff", "check", "--preview", "--select", "PLW1514", "--output-format", "concise"]
    done = subprocess.run([*command, "--exclude", "triton", SOURCE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


MODULES_OF_POSIX = ("fcntl", "grp", "pwd", "resource", "termios", "tty")


@pytest.mark.skipif(sys.platform == "win32", reason="these are absent there")
def test_a_model_runs_without_the_modules_of_posix(tmp_path: Path) -> None:
    """As on Windows: they are absent, and so are os.fork, os.sched_getaffinity and signal.setitimer."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
    from gguf_writer import tiny_model

    model = str(tiny_model().write(tmp_path / "tiny.gguf"))
    code = f"""
import builtins, os, signal, subprocess, sys
real = builtins.__import__
import _posixsubprocess  # Popen's own
def without(name, *rest):
    if name in {MODULES_OF_POSIX!r}:
        raise ImportError(name)
    return real(name, *rest)
builtins.__import__ = without
for name in {MODULES_OF_POSIX!r}:
    sys.modules.pop(name, None)
for name in ("sched_getaffinity", "fork", "killpg"):
    delattr(os, name)
for name in ("setitimer", "SIGKILL"):
    delattr(signal, name)
from samebits.cli.main import main
sys.argv = ["samebits", "generate", "hi", "--model", {model!r}, "--max-tokens", "3"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout
