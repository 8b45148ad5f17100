"""A bar on standard error for what a pull does; nothing where no one is looking."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class PullBar:
    """One bar per step of a pull, as the steps come: all files of a model are one step."""

    def __init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        self._bars = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> PullBar:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars:
            self._bars.stop()

    def report(self, step: str, num_bytes: int, total: int | None) -> None:
        """What `loaders.pull` calls: bytes so far, and in all where that is known."""
        if self._bars is None:
            return
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total)
        self._bars.update(self._tasks[step], completed=num_bytes, total=total)
