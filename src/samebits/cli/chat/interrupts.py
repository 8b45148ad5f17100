"""Keys that are pressed while no prompt is shown: Ctrl-C ends the answer, the others wait for the next prompt."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")


class Interrupt:
    """Whether Ctrl-C was pressed. No exception: the engine's step under way is always finished."""

    def __init__(self) -> None:
        self.was_pressed = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Notes Ctrl-C in this block."""
        self.was_pressed = False
        before = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _note(self, *_: Any) -> None:
        self.was_pressed = True

    def until(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items up to Ctrl-C."""
        for item in items:
            yield item
            if self.was_pressed:
                return


@contextmanager
def keys_kept() -> Iterator[None]:
    """Keys wait in this block as they were pressed, unseen: echoed, they would stand in the middle of what is drawn."""
    try:
        import termios
    except ImportError:  # a system whose terminals have no such settings
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    kept = [*before]
    kept[0] &= ~termios.ICRNL  # Enter stays Enter, and sends what was typed ahead of the prompt
    kept[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
