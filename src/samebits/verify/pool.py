"""Worker processes for cases: a crash or a hang in one case is its result, never the end of the run."""

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
from samebits.verify.model import Finding, Result, Task

START_SECONDS = 120.0  # a worker imports toolchains and opens its device before the first case


def _serve(connection: Connection, backend_name: str) -> None:
    """A worker's life: take a task, answer with its results, until told to stop."""
    from samebits.verify.examine import examine

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    found = discovery.get(backend_name)
    if found.backend is None or found.caps is None:
        raise Unavailable(found.reason)
    connection.send("ready")
    while (task := connection.recv()) is not None:
        connection.send(examine(found.backend, found.caps, task))


@dataclass
class Worker:
    """One process and the task it has, if any."""

    process: Any
    connection: Connection
    deadline: float
    task: Task | None = None
    is_ready: bool = False


class Pool:
    """Runs tasks on `num_workers` processes; results come in the order in which cases finish."""

    def __init__(self, backend: str, num_workers: int, case_seconds: float) -> None:
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
        return Worker(process, ours, time.monotonic() + START_SECONDS)

    def _step(self, waiting: list[Task]) -> Iterator[list[Result]]:
        """Waits for one event: an answer, a death or a time limit."""
        nearest = min((w.deadline for w in self._workers if w.task or not w.is_ready), default=time.monotonic())
        ready = wait([w.connection for w in self._workers], timeout=max(0.0, nearest - time.monotonic()))
        for worker in list(self._workers):
            if worker.connection in ready:
                yield from self._hear(worker, waiting)
            elif time.monotonic() > worker.deadline and (worker.task or not worker.is_ready):
                seconds = self._case_seconds if worker.is_ready else START_SECONDS
                yield from self._lose(worker, waiting, "timeout", f"no answer within {seconds:g} s")

    def _hear(self, worker: Worker, waiting: list[Task]) -> Iterator[list[Result]]:
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join(5)
            yield from self._lose(worker, waiting, "crash", _obituary(worker.process.exitcode))
            return
        if message == "ready":
            worker.is_ready = True
        else:
            worker.task = None
            yield message
        self._give(worker, waiting)

    def _give(self, worker: Worker, waiting: list[Task]) -> None:
        worker.task = waiting.pop() if waiting else None
        worker.deadline = time.monotonic() + self._case_seconds
        if worker.task is not None:
            with suppress(BrokenPipeError, ConnectionResetError):  # it died idle: the end of its pipe says so next
                worker.connection.send(worker.task)

    def _lose(self, worker: Worker, waiting: list[Task], check: str, how: str) -> Iterator[list[Result]]:
        """Buries a worker; its task, if it had one, has failed. One that never became ready ends the run."""
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)
        task = worker.task
        if task is None:
            if not worker.is_ready:
                raise Unavailable(f"backend {self._backend}: a worker did not start: {how}")
            return
        finding = (Finding(check, how),)
        yield [
            Result(task.op, task.case, tier, "fail", f"{check}: {how}", finding, replay=task.replay)
            for tier in task.tiers
        ]

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
