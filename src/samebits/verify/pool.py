"""Worker processes for cases: a crash or a hang in one case is its result, never the end of the run.

A crash is a failure. A case without an answer within the time limit is unfinished: neither a pass nor a failure.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from samebits.backends import discovery
from samebits.core.errors import Unavailable
from samebits.verify.calibrate import slowness
from samebits.verify.model import Finding, Result, Status, Task

START_SECONDS = 120.0  # on an idle machine; a worker imports toolchains and opens its device before the first case


def _serve(connection: Connection, backend_name: str) -> None:
    """Run in a worker: say how slow the machine is, then answer each task with its results, until told to stop."""
    from samebits.verify.examine import examine

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    found = discovery.get(backend_name)
    if found.backend is None or found.caps is None:
        raise Unavailable(found.reason)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        connection.send(slowness())
        while (task := connection.recv()) is not None:
            connection.send(examine(found.backend, found.caps, task))


@dataclass
class Worker:
    """One process and the task it has, if any; `since` is when it was started or given that task."""

    process: Any
    connection: Connection
    since: float
    task: Task | None = None
    is_ready: bool = False


class Pool:
    """Runs tasks on `num_workers` processes; results come in the order in which cases finish.

    Workers time a fixed piece of work when they start, and this process does so before it gives a task up: time limits
    grow by as much as that takes longer than usual.
    """

    def __init__(self, backend: str, num_workers: int, case_seconds: float) -> None:
        """case_seconds: the time limit of a case on an idle machine."""
        self._slowness = 1.0
        self._backend, self._num_workers, self._case_seconds = backend, num_workers, case_seconds
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[Worker] = []

    def run(self, tasks: list[Task]) -> Iterator[list[Result]]:
        """Yields the results of each task as it ends."""
        waiting = list(reversed(tasks))
        try:
            while waiting or any(w.task for w in self._workers):
                while waiting and len(self._workers) < min(self._num_workers, len(waiting) + self._busy()):
                    self._workers.append(self._start())
                yield from self._step(waiting)
        finally:
            self._stop()

    def _busy(self) -> int:
        return sum(w.task is not None for w in self._workers)

    def _start(self) -> Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._backend), daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours, time.monotonic())

    def _limit(self, worker: Worker) -> float:
        """Seconds that a worker may take for its task, or to become ready."""
        return self._slowness * (self._case_seconds if worker.is_ready else START_SECONDS)

    def _is_late(self, worker: Worker) -> bool:
        """Return whether a worker has taken too long, even if the machine has become slower since the last look."""
        if (not worker.task and worker.is_ready) or time.monotonic() < worker.since + self._limit(worker):
            return False
        self._slowness = max(self._slowness, slowness())
        return time.monotonic() > worker.since + self._limit(worker)

    def _step(self, waiting: list[Task]) -> Iterator[list[Result]]:
        """Waits for one event: an answer, a death or a time limit."""
        limits = (w.since + self._limit(w) for w in self._workers if w.task or not w.is_ready)
        nearest = min(limits, default=time.monotonic())
        ready = wait([w.connection for w in self._workers], timeout=max(0.0, nearest - time.monotonic()))
        for worker in list(self._workers):
            if worker.connection in ready:
                yield from self._hear(worker, waiting)
            elif self._is_late(worker):
                yield from self._lose(worker, "unfinished", f"no answer within {self._limit(worker):.3g} s")

    def _hear(self, worker: Worker, waiting: list[Task]) -> Iterator[list[Result]]:
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join(5)
            yield from self._lose(worker, "fail", _obituary(worker.process.exitcode))
            return
        if not worker.is_ready:
            worker.is_ready, self._slowness = True, max(self._slowness, message)
        else:
            worker.task = None
            yield message
        self._give(worker, waiting)

    def _give(self, worker: Worker, waiting: list[Task]) -> None:
        worker.task = waiting.pop() if waiting else None
        worker.since = time.monotonic()
        if worker.task is not None:
            with suppress(BrokenPipeError, ConnectionResetError):  # it died idle: the end of its pipe says so next
                worker.connection.send(worker.task)

    def _lose(self, worker: Worker, status: Status, how: str) -> Iterator[list[Result]]:
        """End a worker and yield that status for its task, if it has one. Raise Unavailable if it never got ready."""
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)
        task = worker.task
        if task is None:
            if not worker.is_ready:
                raise Unavailable(f"backend {self._backend}: a worker did not start: {how}")
            return
        crashed = status == "fail"
        reason, findings = (f"crash: {how}", (Finding("crash", how),)) if crashed else (how, ())
        yield [Result(task.op, task.case, t, status, reason, findings, replay=task.replay) for t in task.tiers]

    def _stop(self) -> None:
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()
        self._workers.clear()


def _obituary(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"the worker was ended by {signal.Signals(-exit_code).name}"
    return f"the worker ended with status {exit_code}"
