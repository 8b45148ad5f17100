"""Sides that compute nothing: their seconds are given, their calls are noted."""

from __future__ import annotations

from typing import Any

from samebits.bench.results import Row
from samebits.core.errors import Unavailable


class FakeSide:
    """Takes `seconds[setting]` for every row; a setting without an entry is refused."""

    def __init__(self, name: str, seconds: dict[str, float], calls: list[tuple[str, str]], refused: str = "") -> None:
        self.name, self._seconds, self._calls = name, seconds, calls
        self.settings = (*seconds, refused) if refused else tuple(seconds)
        self.facts: dict[str, Any] = {"version": f"{name} 1.0", "amx": True}
        self.is_closed = False

    def seconds(self, row: Row, setting: str) -> float:
        self._calls.append((self.name, setting))
        if setting not in self._seconds:
            raise Unavailable(f"{self.name}: no {setting}")
        return self._seconds[setting]

    def close(self) -> None:
        self.is_closed = True
