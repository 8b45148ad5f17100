"""Every error a user can cause. One line each: what was given, what is needed."""

from __future__ import annotations

MOST_LISTED, NEAREST = 64, 8  # names that a message lists; of more it lists the nearest few


class SamebitsError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class BadInput(SamebitsError, ValueError):
    """An argument is wrong. Raised before anything is written."""

    def __init__(self, where: str, argument: str, given: object, needed: str) -> None:
        super().__init__(f"{where}: {argument}: got {given}; needs {needed}")
        self.where = where
        self.argument = argument


class NotFound(BadInput):
    """A file or a model that does not exist. The message is a sentence of its own."""

    def __init__(self, where: str, argument: str, message: str) -> None:
        SamebitsError.__init__(self, message)
        self.where, self.argument = where, argument


class UnknownName(SamebitsError, KeyError):
    """A name that no registry entry carries."""

    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        listed = f"known: {', '.join(sorted(known))}"
        if len(known) > MOST_LISTED:
            from difflib import get_close_matches  # no program needs it to start

            nearest = get_close_matches(name, known, NEAREST, cutoff=0.0)
            listed = f"of {len(known)} known ones the nearest are {', '.join(nearest)}"
        super().__init__(f"unknown {kind} {name!r}; {listed}")

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class Unsupported(SamebitsError):
    """No kernel of the backend honours the request; the text carries every refusal."""


class Unavailable(SamebitsError):
    """A backend cannot run here; the text is the reason."""


class OutOfMemory(SamebitsError):
    """The device has no room for what was asked; the text says what that was and what was free."""
