"""Text that counts the characters that are copied or looked at in it: work that is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex


class Counter:
    """The characters visited so far in all texts of this counter."""

    def __init__(self) -> None:
        self.num_chars = 0

    def text(self, value: str) -> CountedText:
        made = CountedText(value)
        made.counter = self
        return made


class CountedText(str):
    """A text whose operations count their cost, as do the texts that they return."""

    counter: Counter

    def _counted(self, value: str) -> CountedText:
        self.counter.num_chars += len(value)
        return self.counter.text(value)

    def _looked(self) -> None:
        self.counter.num_chars += len(self)

    def __add__(self, other: str) -> CountedText:
        return self._counted(str.__add__(self, other))

    def __radd__(self, other: str) -> CountedText:
        return self._counted(str.__add__(other, str(self)))

    def __getitem__(self, key: SupportsIndex | slice) -> CountedText:
        return self._counted(str.__getitem__(self, key))

    def __iter__(self) -> Iterator[CountedText]:  # type: ignore[override]
        return (self._counted(character) for character in str.__iter__(self))

    def partition(self, sep: str) -> tuple[Any, Any, Any]:
        self._looked()
        before, found, after = str.partition(self, sep)
        return self.counter.text(before), self.counter.text(found), self.counter.text(after)

    def splitlines(self, keepends: bool = False) -> list[Any]:
        return [self._counted(line) for line in str.splitlines(self, keepends)]

    def translate(self, table: Any) -> CountedText:
        return self._counted(str.translate(self, table))

    def strip(self, chars: str | None = None) -> CountedText:
        self._looked()
        return self.counter.text(str.strip(self, chars))

    def lstrip(self, chars: str | None = None) -> CountedText:
        self._looked()
        return self.counter.text(str.lstrip(self, chars))

    def rstrip(self, chars: str | None = None) -> CountedText:
        self._looked()
        return self.counter.text(str.rstrip(self, chars))


def check_linear(work: Callable[[Iterable[str], Counter], None], chunk: str, num_chunks: int = 200) -> None:
    """Check that reading four times as many chunks visits about four times as many characters."""
    counts = []
    for num in (num_chunks, 4 * num_chunks):
        counter = Counter()
        counter.num_chars = num * len(chunk)
        work((counter.text(chunk) for _ in range(num)), counter)
        counts.append(counter.num_chars)
    assert counts[1] <= 5 * counts[0], counts
