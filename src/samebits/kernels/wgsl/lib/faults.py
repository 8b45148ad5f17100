"""How a shader refuses a value: it stores the number of a reason in one word, which is read when the host waits."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.core.errors import BadInput

SAMPLING = "sample"  # what the reasons of drawing a token begin with
NUM_WORDS = 2  # the model's, then sampling's: a row without a token must not hide what the model refused before
_REASONS: list[tuple[str, str, str, str]] = []


def fault(where: str, argument: str, given: str, needed: str) -> int:
    """The number of a reason, 1 or more."""
    reason = (where, argument, given, needed)
    if reason not in _REASONS:
        _REASONS.append(reason)
    return _REASONS.index(reason) + 1


def word_of(numbers: Iterable[int]) -> int:
    """The word that a shader with these reasons stores one of them in."""
    return int(all(_REASONS[number - 1][0] == SAMPLING for number in numbers))


def raised(numbers: tuple[int, ...]) -> BadInput | None:
    """The error that the words stand for, the model's before sampling's."""
    number = next((n for n in numbers if n), 0)
    return BadInput(*_REASONS[number - 1]) if number else None
