"""Calls that a grammar writes, and nothing else: since they cannot break, their arguments are given as they come."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.server.tools.form import CallForm
from samebits.server.tools.reading import ArgumentsPart, Broken, CallOpened, Found, Reader, joined, json_text


class WrittenCalls:
    """Takes the text of an answer that is held to calls of these functions, in any cut.

    Gives each call when its name is known, and its arguments in parts. What does not fit, because an answer was cut
    before a name or is not held to this form after all, is text.
    """

    def __init__(self, form: CallForm, names: Iterable[str]) -> None:
        written = {name: form.written(name) for name in names}
        self._names = {"".join(before): name for name, (before, _) in written.items()}
        self._after = "".join(next(iter(written.values()))[1])
        self._separators = form.separators
        self._held = ""  # the beginning of a call, or what follows its arguments
        self._is_after = False
        self._reader: Reader[str] | None = None
        self._found: list[Found] = []

    def push(self, text: str) -> list[Found]:
        for character in text:
            self._step(character)
        return self._taken()

    def finish(self) -> list[Found]:
        """The end of the answer: what was held back, unless it only would have ended a call."""
        if self._held and not self._is_after:
            self._found.append(self._held)
        return self._taken()

    def _step(self, character: str) -> None:
        if self._reader is not None:
            self._argument(character)
        elif self._is_after:
            self._held += character
            if not self._after.startswith(self._held):
                self._give_up()
            elif self._held == self._after:
                self._held, self._is_after = "", False
        elif self._held or character not in self._separators:
            self._held += character
            if self._held in self._names:
                self._found.append(CallOpened(self._names[self._held]))
                self._held, self._reader = "", _object()
                next(self._reader)
            elif not any(before.startswith(self._held) for before in self._names):
                self._give_up()

    def _argument(self, character: str) -> None:
        if self._reader is None:
            return
        self._found.append(ArgumentsPart(character))
        try:
            self._reader.send(character)
        except (StopIteration, Broken):
            self._reader, self._is_after = None, bool(self._after)

    def _give_up(self) -> None:
        self._found.append(self._held)
        self._held, self._is_after = "", False

    def _taken(self) -> list[Found]:
        found, self._found = self._found, []
        return joined(found)


def _object() -> Reader[str]:
    return (yield from json_text((yield)))
