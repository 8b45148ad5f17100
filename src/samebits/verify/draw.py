"""Drawing rows from an op's space: every class at least once, or every pair of classes that can meet.

The same seed draws the same rows on every platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from random import Random

from samebits.ops.space import Choice, Factor, Pair, Row, Space, Span

QUICK_OPERATIONS = 1 << 23  # of a row's reference: some 50 ms
FULL_OPERATIONS = 1 << 28
TRIES = 16  # of a value within a class, and of a row


def each_class(space: Space, most_operations: int, dice: Random) -> Iterator[Row]:
    """Rows that together hold every class of every factor; one that no row of this cost holds may cost more."""
    wanted = {(f.name, c.label) for f in space.factors for c in f.classes}
    while wanted:
        name, label = min(wanted, key=lambda item: (-_num_open(space, item[0], wanted), item))
        row = _cheapest(space, {name: label}, wanted, (most_operations << shift for shift in (0, 2, 4, 6)), dice)
        met = set(space.classes_of(row).items()) if row else set()
        if row and met & wanted:
            yield row
        wanted -= met | {(name, label)}


def all_pairs(space: Space, most_operations: int, dice: Random) -> Iterator[Row]:
    """Rows that together hold every pair of classes that a row of this cost can hold, cheaper ones where they can."""
    wanted: set[Pair] = {
        (a.name, x.label, b.name, y.label)
        for a, b in combinations(space.factors, 2)
        for x in a.classes
        for y in b.classes
    }
    order = sorted(wanted)
    dice.shuffle(order)
    for pair in order:
        if pair not in wanted:
            continue
        a, x, b, y = pair
        row = _cheapest(space, {a: x, b: y}, wanted, (most_operations >> 5, most_operations), dice)
        met = set(space.pairs_of(row)) if row else set()
        wanted -= met | {pair}
        if row:
            yield row


def large_rows(space: Space, most_operations: int, count: int, dice: Random) -> Iterator[Row]:
    """Rows whose sizes are as large as the cost allows, each with another size served first."""
    for _ in range(count):
        row = _completed(space, {}, set(), most_operations, dice, prefers_large=True)
        if row:
            yield row


def _num_open(space: Space, name: str, wanted: set[tuple[str, str]]) -> int:
    return sum((name, c.label) in wanted for c in space[name].classes)


def _cheapest(space: Space, labels: dict[str, str], wanted: set, prices: Iterable[int], dice: Random) -> Row | None:
    """A row with these classes at the first price that buys one."""
    rows = (_completed(space, labels, wanted, price, dice) for price in prices)
    return next((row for row in rows if row), None)


def _completed(
    space: Space,
    labels: dict[str, str],
    wanted: set,
    most_operations: int,
    dice: Random,
    prefers_large: bool = False,
) -> Row | None:  # wanted: classes or pairs
    """A row with these classes, the others chosen to hold much of what is wanted; None where none was found."""
    for _ in range(TRIES):
        row: Row = {}
        names = [*labels, *dice.sample([f.name for f in space.factors if f.name not in labels], k=_rest(space, labels))]
        rest = (wanted, most_operations, dice, prefers_large)
        if all(_assign(space, space[n], labels.get(n), row, *rest) for n in names):
            return {f.name: row[f.name] for f in space.factors}
    return None


def _rest(space: Space, labels: dict[str, str]) -> int:
    return len(space.factors) - len(labels)


def _assign(
    space: Space,
    factor: Factor,
    label: str | None,
    row: Row,
    wanted: set,
    most_operations: int,
    dice: Random,
    prefers_large: bool,
) -> bool:
    """Gives the row a value of this factor; False where none is allowed beside what it has."""
    classes = [c for c in factor.classes if label in (None, c.label)]
    dice.shuffle(classes)
    if label is None:
        present = space.classes_of(row) if row else {}
        classes.sort(key=lambda c: -_gain(factor, c, present, wanted))
    if prefers_large:
        classes.sort(key=lambda c: -c.low if isinstance(c, Span) else 0)
    for found in classes:
        for _ in range(TRIES if isinstance(found, Span) else 1):
            row[factor.name] = found.draw(dice)
            if space.allows(row, most_operations):
                return True
    row.pop(factor.name, None)
    return False


def _gain(factor: Factor, found: Span | Choice, present: dict[str, str], wanted: set) -> int:
    """How much of what is wanted a class would bring to a row."""
    if (factor.name, found.label) in wanted:
        return 1
    pairs = ((name, label, factor.name, found.label) for name, label in present.items())
    return sum(pair in wanted or (*pair[2:], *pair[:2]) in wanted for pair in pairs)
