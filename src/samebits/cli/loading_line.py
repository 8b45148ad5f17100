"""How far a model is, on a line of standard error that goes away again.

Written by hand: the first token waits for whatever is imported.
"""

from __future__ import annotations

import sys
from types import TracebackType

QUIET_SECONDS = 1.0  # of compiling, before anything is said of it


class LoadingLine:
    """What is done so far while someone is looking; elsewhere one line, and only where it takes long."""

    def __init__(self) -> None:
        self._is_shown, self._said = sys.stderr.isatty(), ""

    def show(self, done: int, total: int) -> None:
        """What a model's `progress` is called with: tensors so far, and in all."""
        if done < total:
            self._say(f"loading weights {100 * done // total} %")
        else:
            self.clear()  # what is logged next starts a line

    def show_compiling(self, done: int, total: int, seconds: float) -> None:
        """What a model's `compile_progress` is called with."""
        if seconds < QUIET_SECONDS:
            return
        if self._is_shown and done == total:
            self.clear()
        elif self._is_shown:
            self._say(f"compiling {done} of {total} kernels, {seconds:.0f} s")
        elif not self._said:
            self._said = f"compiling {total} kernels for this GPU, once"
            print(self._said, file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        if self._is_shown and text != self._said:
            self._said = text
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Takes the line away, if there is one."""
        if self._is_shown and self._said:
            self._said = ""
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> LoadingLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
