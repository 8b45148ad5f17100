"""Faults at any line of an engine's own code, as an interrupt or a shortage of memory may come."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import samebits

HOME = Path(samebits.__file__).parent
ROOMS = tuple(str(HOME / room) for room in ("engine", "scheduler", "cache", "backends/cpu"))
Place = tuple[str, int]  # a file and a line


class Trace:
    """Sees every line of ROOMS that runs while a call is made, and raises before one of them.

    places   how often each line has run
    """

    def __init__(self, target: Place | None = None, occurrence: int = 1, error: BaseException | None = None) -> None:
        self.places: Counter[Place] = Counter()
        self.has_raised = False
        self._target, self._occurrence, self._error = target, occurrence, error

    def run(self, call: Callable[[], Any]) -> Any:
        sys.settrace(self._enter)
        try:
            return call()
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(ROOMS) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            self.places[place] += 1
            if place == self._target and self.places[place] == self._occurrence and not self.has_raised:
                self.has_raised = True
                assert self._error is not None
                raise self._error
        return self._line
