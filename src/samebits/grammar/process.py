"""The processes of grammars from outside: starting them, and ending them all."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from samebits.core.errors import SamebitsError
from samebits.grammar.wire import (
    FORK,
    Bounds,
)
from samebits.loaders import SpecialTokens

START_SECONDS = 60.0  # for a process to greet on a busy machine
COMMAND = (sys.executable, "-P", "-m", "samebits.grammar.worker")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # it forks


@dataclass(frozen=True)
class Vocabulary:
    """What the processes read: the model's file or folder, its number of logits, and the token that ends an answer."""

    path: Path
    vocab_size: int
    end: int


def vocabulary_of(path: Path | None, vocab_size: int, special: SpecialTokens) -> Vocabulary | None:
    """What grammars need of a model; None where it lacks a part, or the system lacks fork."""
    ends = (special.eot, special.eos, *sorted(special.end_ids))
    end = next((i for i in ends if i is not None), None)
    if path is None or end is None or not hasattr(os, "fork"):
        return None
    return Vocabulary(path, vocab_size, end)


class Nursery:
    """The process that holds the vocabulary, and through it all processes of grammars.

    All that descend from it are in one process group, which `close` ends.
    """

    def __init__(self, vocabulary: Vocabulary, bounds: Bounds) -> None:
        self._settings = {**asdict(vocabulary), "path": str(vocabulary.path), "bounds": asdict(bounds)}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_closed, self._lock = False, threading.Lock()

    def child(self) -> socket.socket:
        """A socket to a new process that waits for a format; SamebitsError where there can be none.

        The first call starts the first process, as does one that finds it dead.
        """
        with self._lock:
            if self._is_closed:
                raise SamebitsError("the server is shutting down")
            try:
                if self._control is not None:
                    with suppress(OSError):  # something outside ended it
                        return fork_through(self._control)
                self._end()
                self._control = self._start()
                return fork_through(self._control)
            except OSError as error:
                raise SamebitsError(f"the process for response formats cannot be started: {error}") from None

    def close(self) -> None:
        """Ends every process of a grammar; there will be no others."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _start(self) -> socket.socket:
        control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno()), json.dumps(self._settings)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a group of its own, which no Ctrl-C at the terminal reaches
            )
        return control

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with suppress(ProcessLookupError):  # they have all ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = self._control = None


def fork_through(control: socket.socket) -> socket.socket:
    """A socket to a new child of the process behind `control`; OSError where that has gone.

    The child greets with HELLO: only then is it known that there is one.
    """
    mine, theirs = socket.socketpair()
    with theirs:
        try:
            socket.send_fds(control, [FORK], [theirs.fileno()])
        except OSError:
            mine.close()
            raise
    return mine


class Ended(Exception):
    """A process ended without a reply: it broke a bound, or never came up."""


class Refused(Exception):
    """A format that does not compile; the text is the compiler's reason."""
