"""A named collection that refuses duplicates and explains unknown names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from samebits.core.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Insertion-ordered names to entries. An alias finds its entry but is not listed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    def add(self, name: str, entry: T, aliases: tuple[str, ...] = ()) -> T:
        for new in (name, *aliases):
            if new in self._entries or new in self._aliases:
                raise ValueError(f"{self.kind} {new!r} is registered twice")
        self._entries[name] = entry
        self._aliases.update(dict.fromkeys(aliases, name))
        return entry

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[self._aliases.get(name, name)]
        except KeyError:
            raise UnknownName(self.kind, name, list(self._entries)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._aliases

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        return list(self._entries)
