"""How far the weights are, on a line of standard error that goes away again.

Written by hand: the first token waits for whatever is imported.
"""

from __future__ import annotations

import sys
from types import TracebackType


class LoadingLine:
    """A percentage while someone is looking, nothing otherwise."""

    def __init__(self) -> None:
        self._is_shown, self._percent = sys.stderr.isatty(), -1

    def show(self, done: int, total: int) -> None:
        """What a model's `progress` is called with: bytes so far, and in all."""
        percent = 100 * done // max(total, 1)
        if self._is_shown and percent != self._percent:
            self._percent = percent
            print(f"\rloading weights {percent} %", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> LoadingLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
