"""What kernels of an op may branch on, stated as a space of factors; conformance cases are drawn from it.

A factor is a size, whose classes lie between powers of two, or a choice by name. A row gives every factor a value,
and is itself the name of its case: "T=33,N=16385,K=64,weight=q4_k,values=ties".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from random import Random
from typing import Any

from samebits.core.errors import BadInput

Value = int | str
Row = dict[str, Value]
Pair = tuple[str, str, str, str]


@dataclass(frozen=True)
class Span:
    """Sizes low .. high that are multiples of `step`: one class of a size."""

    low: int
    high: int
    step: int = 1

    @cached_property
    def label(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"

    def holds(self, value: Value) -> bool:
        return isinstance(value, int) and self.low <= value <= self.high

    @cached_property
    def _aligned(self) -> tuple[range, ...]:
        """The odd multiples that the span holds of each power of two from 4 on, times `step` if that is more than 1."""
        units = (self.step << i for i in range(self.high.bit_length()))
        return tuple(found for u in units if u >= 4 and (found := self._odd_multiples(u)))

    @cached_property
    def _sizes(self) -> range:
        return range(self.low, self.high + 1, self.step)

    def _odd_multiples(self, unit: int) -> range:
        """Return the odd multiples of a unit, from three times on, that lie in the span."""
        first = max(3, -(-self.low // unit) | 1)
        return range(first * unit, self.high + 1, 2 * unit)

    def draw(self, dice: Random) -> int:
        """Return an end, any size, or a size of models: an odd multiple of 4, 8, 16 and so on, each as often.

        Kernels branch at the ends, and round up to a power of two in between.
        """
        between = dice.choice(self._sizes)
        aligned = dice.choice(dice.choice(self._aligned)) if self._aligned else between
        return dice.choice((self.low, self.high, between, aligned))


@dataclass(frozen=True)
class Choice:
    """One named alternative."""

    label: str

    def holds(self, value: Value) -> bool:
        return str(value) == self.label

    def draw(self, dice: Random) -> str:
        return self.label


@dataclass(frozen=True)
class Factor:
    """Something a kernel may branch on; `usual` is what a row takes that does not say.

    is_setting  whether it is an attribute, an optional input or a format: every two classes of two settings meet in
                a quick run if they may
    rare        further classes, which are not drawn: corners of the space have them
    """

    name: str
    classes: tuple[Span | Choice, ...]
    usual: Value
    least: Value  # the cheapest
    is_setting: bool = False
    rare: tuple[Span | Choice, ...] = ()

    @property
    def stated(self) -> tuple[Span | Choice, ...]:
        """All classes, those of corners too."""
        return (*self.classes, *self.rare)

    def class_of(self, value: Value) -> Span | Choice:
        """The class that holds a value; BadInput where none does."""
        for found in self.stated:
            if found.holds(value):
                return found
        raise BadInput("case", self.name, value, " or ".join(c.label for c in self.stated))

    def takes(self, number: int) -> bool:
        """Return whether this is a size that can be that number."""
        return any(isinstance(c, Span) and c.holds(number) and number % c.step == 0 for c in self.classes)

    def parse(self, text: str) -> Value:
        value: Value = int(text) if isinstance(self.classes[0], Span) and text.isdecimal() else text
        found = self.class_of(value)
        if isinstance(found, Span) and isinstance(value, int) and value % found.step:
            raise BadInput("case", self.name, value, f"a multiple of {found.step}")
        return value


def size(
    name: str,
    most: int,
    *,
    least: int = 1,
    step: int = 1,
    usual: int | None = None,
    far: int | None = None,
    corners: int | None = None,
) -> Factor:
    """A size of least .. most steps: `least`, then a class from just above each power of two up to the next.

    The last class goes on to `far` steps if that is given, in sizes that are drawn only where they are cheap. Sizes up
    to `corners` steps are never drawn: only corners of a space have them.
    """
    edges = [least, *(p for p in (1 << i for i in range(32)) if least < p < most), far or most]
    spans = [Span(least * step, least * step, step)]
    spans += [Span((a + 1) * step, b * step, step) for a, b in pairwise(edges) if b > a]
    rare = () if corners is None else (Span(((far or most) + 1) * step, corners * step, step),)
    return Factor(name, tuple(spans), usual if usual is not None else max(least, 1) * step, least * step, rare=rare)


def choice(name: str, *labels: str, least: str | None = None) -> Factor:
    """Alternatives by name, the usual one first; `least` is the cheapest where cost depends on it."""
    return Factor(name, tuple(map(Choice, labels)), labels[0], least or labels[0])


def setting(name: str, *labels: str, least: str | None = None) -> Factor:
    """Return a choice of an attribute's value, of an optional input or of a format."""
    return replace(choice(name, *labels, least=least), is_setting=True)


@dataclass(frozen=True)
class Space:
    """`case(row)` gives a complete row's dims, attrs, formats, given and extra, as keyword arguments of `Case`;
    `crossed` names groups of factors that belong together: a quick run takes every combination of their classes;
    `cost(row)` the operations of its reference, from below for the least values; `fits(row)` is False where values
    exclude each other, and judges partial rows too: it must not refuse one that some completion makes valid;
    `corners` are rows that every run plays, because drawing reaches their sizes too rarely; `far_row` is one that a
    full run plays on the end of a very large cache.
    """

    factors: tuple[Factor, ...]
    case: Callable[[Row], dict[str, Any]]
    cost: Callable[[Row], int]
    fits: Callable[[Row], bool] = lambda row: True
    crossed: tuple[tuple[str, ...], ...] = ()
    corners: tuple[str, ...] = ()
    far_row: str = ""

    def __getitem__(self, name: str) -> Factor:
        return next(f for f in self.factors if f.name == name)

    @cached_property
    def settings(self) -> tuple[Factor, ...]:
        return tuple(f for f in self.factors if f.is_setting)

    def allows(self, row: Row, most_operations: int) -> bool:
        """Whether a row, complete or not, may be drawn."""
        return self.fits(row) and self.cost({**self._least, **row}) <= most_operations

    @cached_property
    def _least(self) -> Row:
        """The cheapest value of every factor."""
        return {f.name: f.least for f in self.factors}

    def row_id(self, row: Row) -> str:
        return ",".join(f"{f.name}={row[f.name]}" for f in self.factors)

    def parse(self, text: str) -> Row:
        """The row of a case's name; what it leaves out is as usual. BadInput for what the space does not have."""
        given: dict[str, str] = dict(part.partition("=")[::2] for part in text.split(","))
        names = [f.name for f in self.factors]
        for name in given:
            if name not in names:
                raise BadInput("case", name, "an unknown factor", f"one of {', '.join(names)}")
        row = {f.name: f.parse(given[f.name]) if f.name in given else f.usual for f in self.factors}
        if not self.fits(row):
            raise BadInput("case", text, "values that exclude each other", "a row of the op's space")
        return row

    def classes_of(self, row: Row) -> dict[str, str]:
        """The label of the class that each factor's value lies in."""
        return {f.name: f.class_of(row[f.name]).label for f in self.factors if f.name in row}

    def pairs_of(self, row: Row) -> list[Pair]:
        """Every pair of two factors' classes that meet in a row."""
        labels = self.classes_of(row)
        return [(a, labels[a], b, labels[b]) for a, b in combinations(labels, 2)]
