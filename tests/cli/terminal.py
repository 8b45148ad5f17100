"""A program at a terminal: a real pty, and a screen that reads what a terminal would show."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import pyte

MAX_SECONDS = 60.0
ENTER, CTRL_C, CTRL_D, CTRL_J, UP = "\r", "\x03", "\x04", "\n", "\x1b[A"


class _Screen(pyte.HistoryScreen):
    """Answers a program's questions, such as where the cursor is, as a terminal does."""

    def __init__(self, columns: int, lines: int, reply: Callable[[bytes], Any]) -> None:
        super().__init__(columns, lines, history=10_000)
        self._reply = reply

    def write_process_input(self, data: str) -> None:
        self._reply(data.encode())


class Terminal:
    """Runs `samebits` at a terminal of so many columns and lines."""

    def __init__(self, *arguments: str, columns: int = 200, lines: int = 30, **environment: str) -> None:
        self.raw = b""
        self.status: int | None = None
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            sized = ("COLUMNS", "LINES")  # which would go before the terminal's own size
            given = {name: value for name, value in os.environ.items() if name not in sized}
            env = {**given, "TERM": "xterm-256color", "NO_COLOR": "", **environment}
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
            os.execve(sys.executable, [sys.executable, "-m", "samebits.cli.main", *arguments], env)
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self.screen = _Screen(columns, lines, lambda data: os.write(self._master, data))
        self._stream = pyte.ByteStream(self.screen)

    @property
    def text(self) -> str:
        """What stands on the screen, and what has scrolled off it."""
        above = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in (*above, *self.screen.display))

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, condition: str | Callable[[str], bool]) -> str:
        """Reads until the screen shows a text or meets a condition; the screen."""
        holds = (lambda text: condition in text) if isinstance(condition, str) else condition
        end = time.monotonic() + MAX_SECONDS
        while not holds(self.text):
            assert time.monotonic() < end, f"waited for {condition!r}; the screen:\n{self.text}"
            if not self._read(0.2) and self.status is not None:
                raise AssertionError(f"ended with status {self.status}; the screen:\n{self.text}")
        return self.text

    def wait_end(self) -> int:
        """Reads until the program has ended; its exit status."""
        end = time.monotonic() + MAX_SECONDS
        while self.status is None:
            assert time.monotonic() < end, f"still running; the screen:\n{self.text}"
            self._read(0.2)
        return self.status

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the other end is closed
                data = b""
            if data:
                self.raw += data
                self._stream.feed(data)
                return True
        ended, status = os.waitpid(self._pid, os.WNOHANG) if self.status is None else (0, 0)
        if ended:
            self.status = os.waitstatus_to_exitcode(status)
        return False

    def close(self) -> None:
        """Ends the program if it has not ended."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._master)
