"""Text from outside on its way into a line that people read."""

from __future__ import annotations

MAX_CHARS = 200


def printable(text: object, max_chars: int | None = MAX_CHARS) -> str:
    """`text` with everything escaped that is not printed as itself, cut after `max_chars` characters of it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text)[:max_chars])


def one_line(reason: str) -> str:
    """A reason that another program gave, cut short."""
    return printable(" ".join(reason.split()))
