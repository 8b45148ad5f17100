"""A process that compiles: `python -m samebits.kernels.compile_server MODULE ...`.

It imports the modules once and forks a process for every build: compilers hold Python's lock, and one that dies takes
nothing with it. Builds come on standard input and outcomes go to standard output, as pickles with their length before
them, between two processes of ours. The end of its input ends it, and whatever it still compiles.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import struct
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

LENGTH = struct.Struct("<Q")


def send(stream: BinaryIO, content: Any) -> None:
    """Writes one object."""
    data = pickle.dumps(content)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next object; EOFError at the end, even in the middle of one."""
    (length,) = LENGTH.unpack(_exactly(stream, LENGTH.size))
    return pickle.loads(_exactly(stream, length))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    parts = []
    while count:
        parts.append(stream.read(count))
        if not parts[-1]:
            raise EOFError("the other process has ended")
        count -= len(parts[-1])
    return b"".join(parts)


class Server:
    """Builds under way, a process each; as many as the other side sends at once."""

    def __init__(self, requests: BinaryIO, outcomes: BinaryIO) -> None:
        self._requests, self._outcomes = requests, outcomes
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ, None)
        self._running: dict[int, tuple[int, float]] = {}  # process -> the build's number, when it began

    def run(self) -> None:
        """Serves until there are no more requests."""
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.data is None:
                        self._start(*receive(self._requests))
                    else:
                        self._end(key.data, key.fd)
        except EOFError:
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)

    def _start(self, number: int, pickled: bytes) -> None:
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.setpgid(0, 0)  # with the assemblers that it starts
            os.close(reading)
            os.write(writing, _error_of(pickled).encode()[:4096])
            os._exit(0)
        os.close(writing)
        self._running[process] = number, time.perf_counter()
        self._selector.register(reading, selectors.EVENT_READ, process)

    def _end(self, process: int, reading: int) -> None:
        """The process wrote its outcome, or died."""
        error = os.read(reading, 4096).decode(errors="replace")
        self._selector.unregister(reading)
        os.close(reading)
        _, status = os.waitpid(process, 0)
        if status:
            error = f"the compiler died, with status {os.waitstatus_to_exitcode(status)}"
        number, started = self._running.pop(process)
        send(self._outcomes, (number, time.perf_counter() - started, error))


def _error_of(pickled: bytes) -> str:
    """What went wrong with a build, in a line; nothing if it was made."""
    try:
        pickle.loads(pickled).build()
    except BaseException as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[-1].strip()}"
    return ""


def main() -> None:
    outcomes = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what compilers print is not for the other side
    for module in sys.argv[1:]:
        import_module(module)
    os.nice(5)  # whoever waits for kernels waits for this; what runs beside it goes first
    send(outcomes, None)
    Server(os.fdopen(0, "rb", buffering=0), outcomes).run()


if __name__ == "__main__":
    main()
