"""How far `samebits verify` is: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from samebits.verify.model import Result

LINE_SECONDS = 10.0
CASE_SECONDS = (
    0.035  # of one processor, for a case of a quick run on native kernels: only for the estimate at the start
)
LEAST_DONE = 0.02  # of the cases, before the time left follows from those that are done


def in_words(seconds: float) -> str:
    """Return a time that is not known well: "40 s", "4 min", "3 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


class VerifyProgress:
    """Shows cases done, each failed case and the time left while cases run; says at the start how long it may take."""

    def __init__(self, console: Console, total: int, jobs: int, line_seconds: float = LINE_SECONDS) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("verifying", total=total)
        self._console, self._total, self._usual = console, total, total * CASE_SECONDS / jobs
        self._line_seconds = line_seconds
        self._done = self._failures = 0
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> VerifyProgress:
        self._bar.__enter__()
        if self._total > 1:
            self._say(f"{self._total} cases; native CPU kernels take about {in_words(self._usual)} on an idle machine")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def advance(self, results: list[Result]) -> None:
        """Count the results of one case. Print its first failure, since a run may take hours or be cut short."""
        self._done += 1
        failed = next((r for r in results if r.status == "fail"), None)
        self._failures += failed is not None
        if failed is not None:
            self._say(f"FAIL {failed.op}/{failed.case} at {failed.tier}: {failed.reason}")
        self._bar.update(self._task, advance=1, description=f"{results[0].op}, {self._left()}")
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= self._line_seconds:
            self._last_line = now
            self._say(f"{self._done} of {self._total} cases, {self._failures} failed, {self._left()}")

    def _left(self) -> str:
        """Return the time left in words, from what the cases so far took."""
        if self._done < LEAST_DONE * self._total:
            return f"about {in_words(self._usual)} left"
        elapsed = time.monotonic() - self._started
        return f"about {in_words(elapsed / self._done * (self._total - self._done))} left"

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)
