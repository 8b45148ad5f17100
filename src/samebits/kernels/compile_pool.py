"""Builds made beside this process, several at a time; see kernels/ahead.py and kernels/compile_server.py."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, BinaryIO, cast

from samebits.core.processors import usable_processors
from samebits.kernels.ahead import Build
from samebits.kernels.compile_server import receive, send

Progress = Callable[[int, int, float], None]  # (builds made, builds in all, seconds since the first)
TELLING_SECONDS = 0.25


@dataclass
class Made:
    """A build and what became of it; `seconds` is None while it is under way or waits."""

    build: Build
    seconds: float | None = None
    error: str = ""

    @property
    def is_over(self) -> bool:
        return self.seconds is not None


class CompilePool:
    """Makes builds in the order in which they are given, urgent ones first. Safe to use from several threads.

    The compiling process ends when there is nothing more to make, and a new one is started for what comes later.
    """

    def __init__(self, modules: Sequence[str], num_jobs: int | None = None) -> None:
        """modules: what a compiling process imports before anything else."""
        self._modules, self._num_jobs = modules, num_jobs or usable_processors()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_listening = False  # whether that process has imported all and takes builds
        self._all: dict[str, Made] = {}
        self._waiting: list[str] = []
        self._sent: dict[int, str] = {}
        self._numbers = itertools.count()
        self._has_changed = threading.Condition()
        self._started_at = 0.0
        self.failure = ""

    def start(self) -> None:
        """Starts the compiling process, whose imports take seconds; `submit` does it otherwise."""
        with self._has_changed:
            if self._process is None:
                complaints = tempfile.TemporaryFile()  # noqa: SIM115  (the listening thread reads it)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "samebits.kernels.compile_server", *self._modules],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    start_new_session=True,  # an interrupt is for us: the end of its input ends it
                )
                threading.Thread(target=self._listen, args=(self._process, complaints), daemon=True).start()

    def submit(self, builds: Iterable[Build]) -> None:
        """Queue the builds that are not on disk yet, after all others."""
        missing = {b.key: Made(b) for b in builds if b.key not in self._all and not b.is_built()}
        with self._has_changed:  # from here on nobody ends the process or queues the same builds
            new = {key: made for key, made in missing.items() if key not in self._all}
            if new and not self.failure:
                self.start()
                if not self._waiting and not self._sent:
                    self._started_at = time.perf_counter()
                self._all |= new
                self._waiting += new
                self._send_some()

    def is_made(self, keys: Iterable[str]) -> bool:
        """Whether nothing of these is under way or waits. One that failed counts: a launch will say why."""
        return bool(self.failure) or all(key not in self._all or self._all[key].is_over for key in keys)

    def wait(self, keys: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Returns when these are made, before all others, or when all are; or when the process has failed."""
        with self._has_changed:
            asked = list(self._all) if keys is None else [key for key in keys if key in self._all]
            first = [key for key in asked if key in self._waiting]
            self._waiting = first + [key for key in self._waiting if key not in first]
            while not self.is_made(asked):
                if progress:
                    num_made = sum(self._all[key].is_over for key in asked)
                    progress(num_made, len(asked), time.perf_counter() - self._started_at)
                self._has_changed.wait(TELLING_SECONDS)
            self._rest()

    def outcomes(self) -> list[Made]:
        """All that was not on disk, in the order in which it was asked for."""
        return list(self._all.values())

    def _listen(self, process: subprocess.Popen[bytes], complaints: IO[bytes]) -> None:
        """A thread: hears what one process says until it ends."""
        with complaints, process:  # whose pipes are closed then, and which is waited for
            try:
                self._take_outcomes(cast(BinaryIO, process.stdout))
            except EOFError:
                complaints.seek(0)
                said = complaints.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
                self._fail(process, f"the process that compiles kernels has ended: {said[-1]}")
            except Exception as error:  # without this thread, whoever waits would wait for ever
                process.kill()
                self._fail(process, f"builds could not be exchanged with their process: {error!r}")

    def _fail(self, process: subprocess.Popen[bytes], reason: str) -> None:
        """Record why nothing more is built, and wake whoever waits; unless the process was told to end."""
        with self._has_changed:
            if process is self._process:
                self.failure = reason
                self._has_changed.notify_all()

    def _take_outcomes(self, outcomes: BinaryIO) -> None:
        """Notes outcomes and sends what comes next, for ever; EOFError when the process ends."""
        receive(outcomes)  # it has imported all
        with self._has_changed:
            self._is_listening = True
            self._send_some()
        while True:
            number, seconds, error = receive(outcomes)
            with self._has_changed:
                made = self._all[self._sent.pop(number)]
                made.seconds, made.error = seconds, error
                self._send_some()
                self._rest()
                self._has_changed.notify_all()

    def _send_some(self) -> None:
        """As much as can be made at once."""
        while self._process and self._is_listening and self._waiting and len(self._sent) < self._num_jobs:
            number, key = next(self._numbers), self._waiting.pop(0)
            made = self._all[key]
            try:
                pickled = pickle.dumps(made.build)
            except (pickle.PicklingError, AttributeError, TypeError) as error:  # whichever pickle raises
                made.seconds, made.error = 0.0, f"{type(error).__name__}: {error}"
                continue
            self._sent[number] = key
            try:
                send(cast(BinaryIO, self._process.stdin), (number, pickled))
            except BrokenPipeError:
                return  # the listening thread hears of it

    def _rest(self) -> None:
        """Ends the process if nothing is left to be made."""
        if self._process is not None and not self._waiting and not self._sent:
            cast(BinaryIO, self._process.stdin).close()
            self._process, self._is_listening = None, False
