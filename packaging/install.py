"""Installs this checkout into the environment of the Python that runs it, and shows how far the build is; `make run`
and the other targets run it. pip's output is kept in build/install.log.

    python packaging/install.py

Without a C++ compiler Samebits is installed without native kernels. If a compiler is found, its errors end the install.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
from samebits.core.installing import has_compiler  # noqa: E402  # it needs nothing that is not installed yet

LOG = ROOT / "build" / "install.log"
REQUIREMENT = ".[server]"
REQUIRE_NATIVE = "SAMEBITS_REQUIRE_NATIVE"
INTERRUPTED = 130
COMPILED = re.compile(r"\[(\d+)/(\d+)\] (?:Building CXX object|Linking CXX) .*?([\w.-]+?)(?:\.cpp)?(?:\.o)?$")
PHASES = (  # the start of a line of pip -> what is done then
    ("Installing build dependencies", "fetching the build tools"),
    ("Collecting ", "fetching dependencies"),
    ("Installing collected packages", "installing dependencies"),
)
MAX_ERROR_LINES = 12


class Progress:
    """One line that says what is done and for how long: rewritten at a terminal, printed anew elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self.phase = ""
        self._out, self._start = out, time.monotonic()
        self._is_terminal = out.isatty()

    def read(self, line: str) -> None:
        """Take a line of pip's output."""
        text = line.strip()
        if found := COMPILED.search(text):
            done, total, name = found.groups()
            longest = "; instruction sets take the longest" if int(done) + 1 < int(total) else ""
            self._enter(f"compiled {done} of {total}: {name}{longest}")
            return
        for start, phase in PHASES:
            if text.startswith(start):
                self._enter(phase)

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self.show()

    def show(self) -> None:
        """Print the line. At a terminal it replaces the last one."""
        seconds = int(time.monotonic() - self._start)
        text = f"  {seconds // 60}:{seconds % 60:02} {self.phase}"
        print(f"\r{text}\x1b[K" if self._is_terminal else text, end="" if self._is_terminal else "\n", file=self._out)
        self._out.flush()

    def tick(self, stopped: threading.Event) -> None:
        """Keep the clock going at a terminal."""
        while self._is_terminal and not stopped.wait(1):
            self.show()

    def close(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=self._out, flush=True)


def build_settings() -> dict[str, str]:
    """Return the environment of the build: a compiler that is there must succeed, unless the user says otherwise."""
    must_succeed = REQUIRE_NATIVE not in os.environ and (os.environ.get("CXX") or has_compiler())
    return os.environ | ({REQUIRE_NATIVE: "1"} if must_succeed else {})


def install(progress: Progress) -> int:
    """Run pip with its output in LOG. Return its exit status."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "install", "-v", "--disable-pip-version-check", "-e", REQUIREMENT]
    stopped = threading.Event()
    with open(LOG, "w", encoding="utf-8") as log:
        pipe: dict[str, int] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        settings = build_settings()
        with subprocess.Popen(command, cwd=ROOT, env=settings, text=True, errors="replace", **pipe) as pip:
            clock = threading.Thread(target=progress.tick, args=(stopped,), daemon=True)
            clock.start()
            for line in pip.stdout or ():
                log.write(line)
                progress.read(line)
            stopped.set()
            clock.join()
    progress.close()
    return pip.returncode


def main() -> int:
    print("building and installing samebits; compiling takes minutes the first time", flush=True)
    if status := install(Progress(sys.stdout)):
        lines = LOG.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.strip() for line in lines if "error:" in line.lower()][:MAX_ERROR_LINES]
        print(*(errors or lines[-MAX_ERROR_LINES:]), f"error: the install failed; {LOG} has all of it", sep="\n")
        return status
    check = "from samebits.kernels.cpp import native; native()"
    if subprocess.run([sys.executable, "-c", check], cwd=LOG.parent, capture_output=True).returncode:
        print(f"warning: samebits is installed without native kernels and is SLOW; {LOG} says why")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nerror: interrupted; run the same command to go on")
        sys.exit(INTERRUPTED)
