"""How a shader refuses a value: it stores the number of a reason in one word, which is read when the host waits."""

from __future__ import annotations

from samebits.core.errors import BadInput

NUM_WORDS = 2  # the model's, then sampling's: a row without a token must not hide what the model refused before
_REASONS: list[tuple[str, str, str, str]] = []


def fault(where: str, argument: str, given: str, needed: str) -> int:
    """The number of a reason, 1 or more."""
    reason = (where, argument, given, needed)
    if reason not in _REASONS:
        _REASONS.append(reason)
    return _REASONS.index(reason) + 1


def raised(numbers: tuple[int, ...]) -> BadInput | None:
    """The error that the words stand for, the model's before sampling's."""
    number = next((n for n in numbers if n), 0)
    return BadInput(*_REASONS[number - 1]) if number else None
