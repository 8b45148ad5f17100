"""Typed, bounded reads from metadata that someone else wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from samebits.core.errors import BadInput
from samebits.core.printable import printable

MAX_GIVEN_CHARS = 80  # of what a message says was given
_REQUIRED: Any = object()


class Fields:
    """A mapping whose values are checked as they are read. A null counts as absent.

    `where` is the file, `prefix` goes before every key. Without a default a key is required. `asked` holds the full
    names of the keys that were looked for: other keys of the file have had no effect.
    """

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.values = values
        self.where = where
        self.prefix = prefix
        self.asked: set[str] = set()

    def fail(self, key: str, given: object, needed: str) -> BadInput:
        text = str(given)
        short = printable(text, MAX_GIVEN_CHARS) + ("..." if len(text) > MAX_GIVEN_CHARS else "")
        return BadInput(self.where, self.prefix + key, short, needed)

    def get(self, key: str) -> Any:
        """The raw value, or None."""
        self.asked.add(self.prefix + key)
        return self.values.get(self.prefix + key)

    def has(self, key: str) -> bool:
        return self.get(key) is not None

    def _value(self, key: str, default: Any, kinds: tuple[type, ...], needed: str) -> Any:
        value = self.get(key)
        if value is None:
            if default is _REQUIRED:
                raise self.fail(key, "nothing", needed)
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.fail(key, shown(value), needed)
        return value

    def integer(self, key: str, low: int, high: int, default: Any = _REQUIRED) -> Any:
        """An integer from `low` to `high`."""
        needed = f"an integer from {low} to {high}"
        value = self._value(key, default, (int,), needed)
        if self.has(key) and not low <= value <= high:
            raise self.fail(key, value, needed)
        return value

    def number(self, key: str, low: float, high: float, default: Any = _REQUIRED) -> Any:
        """A finite number from `low` to `high`; integers are accepted."""
        needed = f"a number from {low:g} to {high:g}"
        value = self._value(key, default, (int, float), needed)
        if not self.has(key):
            return value
        if not low <= value <= high or not math.isfinite(value):
            raise self.fail(key, value, needed)
        return float(value)

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        return self._value(key, default, (str,), "a string")

    def flag(self, key: str, default: Any = _REQUIRED) -> Any:
        return self._value(key, default, (bool,), "true or false")

    def mapping(self, key: str) -> Fields:
        """A nested object; empty when absent."""
        value = self._value(key, {}, (dict,), "an object")
        return Fields(value, f"{self.where}: {self.prefix}{key}")


def shown(value: object) -> str:
    """A value for a message: its own text when short, else what kind it is."""
    if isinstance(value, str | int | float | bool):
        return repr(value) if len(str(value)) <= 80 else f"a {type(value).__name__} of {len(str(value))} characters"
    length = f" of {len(value)}" if hasattr(value, "__len__") else ""
    return f"a {'list' if isinstance(value, Sequence) else type(value).__name__}{length}"
