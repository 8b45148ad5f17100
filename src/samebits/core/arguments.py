"""Arguments that people give: read as they are meant, or refused in a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from samebits.core.errors import BadInput

MAX_SHOWN_CHARS = 80
MAX_SHOWN_BITS = 256  # of a number in a message: Python refuses to write very long ones


def shown(value: Any) -> str:
    """Return a value for a message, cut if it is long."""
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "..."


def whole_number(where: str, name: str, value: Any, low: int, high: int) -> int:
    """An int within bounds, given as one or as numpy's; BadInput otherwise, for true and false too."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        kind = "a whole number, " if number is None else ""
        raise BadInput(where, name, shown(value), f"{kind}{low} .. {high}")
    return number


def whole_numbers(where: str, name: str, values: Iterable[Any], low: int, high: int) -> tuple[int, ...]:
    """Ints within bounds; BadInput for the first that is none."""
    values = tuple(values)
    if set(map(type, values)) == {int} and low <= min(values) and max(values) <= high:
        return values  # as they are: a request may list very many
    return tuple(whole_number(where, name, value, low, high) for value in values)


def real_number(where: str, name: str, value: Any, low: float, high: float) -> float:
    """A float within bounds, given as any number; BadInput otherwise, for true, false and texts too."""
    try:
        number = None if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not low <= number <= high:
        kind = "a number, " if number is None else ""
        raise BadInput(where, name, shown(value), f"{kind}{low:g} .. {high:g}")
    return number


def flag(where: str, name: str, value: Any) -> bool:
    """True or false; BadInput otherwise: "no" would count as true."""
    if value is not True and value is not False:
        raise BadInput(where, name, shown(value), "True or False")
    return value


def texts(where: str, name: str, value: Any) -> tuple[str, ...]:
    """Texts that are not empty; a text alone is one, None is none. BadInput otherwise."""
    given = (value,) if isinstance(value, str) else () if value is None else value
    is_several = isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray, Mapping))
    found = tuple(given) if is_several else (given,)
    wrong = [text for text in found if not isinstance(text, str) or not text]
    if wrong:
        raise BadInput(
            where, name, "an empty text" if wrong[0] == "" else shown(wrong[0]), "texts of a character or more"
        )
    return found
