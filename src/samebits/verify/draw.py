"""Drawing rows from an op's space: every class beside unusual ones, every class alone, every pair of classes.

The same seed draws the same rows on every platform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from random import Random

from samebits.ops.space import Choice, Factor, Pair, Row, Space, Span, Value

QUICK_OPERATIONS = 1 << 22  # of a row's reference: some 25 ms
FULL_OPERATIONS = 1 << 28
DEARER = (0, 2, 4, 6)  # powers of two by which a class may cost more where no cheaper row holds it
USUALLY = 0.8  # how often a factor is as usual beside a class that is drawn alone
TRIES = 16  # of a value within a class, and of a row
MODEL_SIZES = (48, 80, 96, 112, 160, 192)  # of heads and narrow layers; kernels round them up to powers of two

# (factor, one of its classes, labels of the row so far) -> how much the class is preferred
Preference = Callable[[Factor, Span | Choice, dict[str, str]], float]


def each_class(space: Space, most_operations: int, dice: Random) -> Iterator[Row]:
    """Rows with as many new classes as possible, until every class has occurred; expensive ones may cost more."""
    wanted = {(f.name, c.label) for f in space.factors for c in f.classes}

    def is_new(factor: Factor, found: Span | Choice, _: dict[str, str]) -> float:
        return (factor.name, found.label) in wanted

    while wanted:
        open_counts = {f.name: sum((f.name, c.label) in wanted for c in f.classes) for f in space.factors}
        name, label = min(wanted, key=lambda item: (-open_counts[item[0]], item))
        row = _cheapest(space, {name: label}, is_new, _prices(most_operations), dice)
        met = set(space.classes_of(row).items()) if row else set()
        if row and met & wanted:
            yield row
        wanted -= met | {(name, label)}


def each_alone(space: Space, most_operations: int, dice: Random) -> Iterator[Row]:
    """Yield a row for every class and for every combination of crossed ones.

    Most other factors are as usual, so that nothing unusual hides what goes wrong.
    """

    def is_usual(factor: Factor, found: Span | Choice, _: dict[str, str]) -> float:
        return found.holds(factor.usual) and dice.random() < USUALLY

    alone = [{f.name: c.label} for f in space.factors for c in f.classes]
    crossed = [
        {name: c.label for name, c in zip(names, classes, strict=True)}
        for names in space.crossed
        for classes in product(*(space[name].classes for name in names))
    ]
    for labels in (*alone, *crossed):
        row = _cheapest(space, labels, is_usual, _prices(most_operations), dice)
        if row:
            yield row


def model_sizes(space: Space, most_operations: int, dice: Random) -> Iterator[Row]:
    """Yield a row for each entry of MODEL_SIZES: it is the last size of the space, its width, if that can be it.

    The other sizes are other entries as far as the cost allows, else as usual, and so are most choices.
    """
    entries = {f.name: [n for n in MODEL_SIZES if f.takes(n)] for f in space.factors}
    names = [name for name in entries if entries[name]]
    for turn in range(len(MODEL_SIZES) if names else 0):
        given = {name: entries[name][(turn + i) % len(entries[name])] for i, name in enumerate(names)}
        rows = (_with_sizes(space, given, most_operations, dice) for _ in range(TRIES))
        row = next((row for row in rows if row), None)
        if row:
            yield row


def _with_sizes(space: Space, given: dict[str, int], most_operations: int, dice: Random) -> Row | None:
    """Return a row with as many given sizes as it can have, the last ones first, or None if it gets too expensive."""
    row: Row = {}
    rest = [f for f in space.factors if f.name not in given]
    for factor in (*(space[name] for name in reversed(given)), *dice.sample(rest, len(rest))):
        unusual = dice.choice(factor.classes).draw(dice) if dice.random() >= USUALLY else factor.usual
        for value in (given.get(factor.name, unusual), factor.usual, factor.least):
            row[factor.name] = value
            if space.allows(row, most_operations):
                break
        else:
            return None
    return {f.name: row[f.name] for f in space.factors}


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

    def num_new(factor: Factor, found: Span | Choice, present: dict[str, str]) -> float:
        pairs = ((name, label, factor.name, found.label) for name, label in present.items())
        return sum(pair in wanted or (*pair[2:], *pair[:2]) in wanted for pair in pairs)

    for pair in order:
        if pair not in wanted:
            continue
        labels = dict(zip(pair[::2], pair[1::2], strict=True))
        row = _cheapest(space, labels, num_new, (most_operations >> 5, most_operations), dice)
        wanted -= {*(space.pairs_of(row) if row else ()), pair}
        if row:
            yield row


def pairs_of_settings(space: Space, rows: Iterable[Row], most_operations: int, dice: Random) -> Iterator[Row]:
    """Yield rows until every two classes of two settings have met, in these rows or in `rows`.

    Other factors are as usual where they can be. Pairs that exclude each other are left out.
    """
    pairs = combinations(space.settings, 2)
    possible = (((a.name, x), (b.name, y)) for a, b in pairs for x in a.classes for y in b.classes)
    wanted = {frozenset(((a, x.label), (b, y.label))) for (a, x), (b, y) in possible}
    wanted -= {pair for row in rows for pair in _met_settings(space, row)}

    def num_new(factor: Factor, found: Span | Choice, present: dict[str, str]) -> float:
        new = sum(frozenset(((factor.name, found.label), item)) in wanted for item in present.items())
        return new + found.holds(factor.usual) / 2

    for pair in sorted(wanted, key=sorted):
        if pair not in wanted or not space.fits(dict(pair)):
            continue
        row = _cheapest(space, dict(pair), num_new, _prices(most_operations), dice)
        if row:
            wanted -= _met_settings(space, row)
            yield row


def not_empty(space: Space, rows: Iterable[Row], most_operations: int, dice: Random) -> Iterator[Row]:
    """Yield a row without an empty size for every class that `rows` have beside empty sizes alone.

    An empty size costs what a size of 1 does, so it is often drawn beside a large one, of which it shows nothing. A
    class that no row can have without is left out.
    """
    sizes = [f.name for f in space.factors if f.least == 0]
    met, shown = set[tuple[str, str]](), set[tuple[str, str]]()
    for row in rows:
        empty = {name for name in sizes if row[name] == 0}
        for item in space.classes_of(row).items():
            (shown if empty <= {item[0]} else met).add(item)

    def is_usual(factor: Factor, found: Span | Choice, _: dict[str, str]) -> float:
        return -1.0 if factor.least == 0 and found.holds(0) else found.holds(factor.usual)

    for name, label in sorted(met - shown):
        row_or_none = _cheapest(space, {name: label}, is_usual, _prices(most_operations), dice)
        if row_or_none and not any(row_or_none[n] == 0 for n in sizes if n != name):
            yield row_or_none


def _met_settings(space: Space, row: Row) -> set[frozenset[tuple[str, str]]]:
    """Return every pair of classes of settings in a row."""
    labels = space.classes_of({f.name: row[f.name] for f in space.settings})
    return {frozenset(pair) for pair in combinations(labels.items(), 2)}


def large_rows(space: Space, most_operations: int, count: int, dice: Random) -> Iterator[Row]:
    """Rows whose sizes are as large as the cost allows, each with another size served first."""

    def largest(factor: Factor, found: Span | Choice, _: dict[str, str]) -> float:
        return found.low if isinstance(found, Span) else 0.0

    for _ in range(count):
        row = _completed(space, {}, largest, most_operations, dice)
        if row:
            yield row


def _prices(most_operations: int) -> Iterator[int]:
    return (most_operations << power for power in DEARER)


def _cheapest(
    space: Space, labels: dict[str, str], prefer: Preference, prices: Iterable[int], dice: Random
) -> Row | None:
    """A row with these classes, at the lowest cost for which there is one."""
    rows = (_completed(space, labels, prefer, price, dice) for price in prices)
    return next((row for row in rows if row), None)


def _completed(
    space: Space, labels: dict[str, str], prefer: Preference, most_operations: int, dice: Random
) -> Row | None:
    """A row with these classes and, in random order, preferred ones of the rest; None where none was found."""
    factors = {f.name: f for f in space.factors}
    rest = [name for name in factors if name not in labels]
    for _ in range(TRIES):
        row: Row = {}
        present: dict[str, str] = {}  # the row's classes
        for name in (*labels, *dice.sample(rest, len(rest))):
            found = _assign(space, factors[name], labels.get(name), row, present, prefer, most_operations, dice)
            if found is None:
                break
            present[name] = found.label
        else:
            return {name: row[name] for name in factors}
    return None


def _assign(
    space: Space,
    factor: Factor,
    label: str | None,
    row: Row,
    present: dict[str, str],
    prefer: Preference,
    most_operations: int,
    dice: Random,
) -> Span | Choice | None:
    """Gives the row a value of this factor and says of which class; None where none is allowed beside what it has."""
    classes = [c for c in factor.classes if label in (None, c.label)]
    dice.shuffle(classes)
    if label is None:
        classes.sort(key=lambda c: -prefer(factor, c, present))
    for found in classes:
        refused = set[Value]()  # an end of a span is drawn again and again
        for value in _values(factor, found, label is None, dice):
            if value in refused:
                continue
            row[factor.name] = value
            if space.allows(row, most_operations):
                return found
            refused.add(value)
    row.pop(factor.name, None)
    return None


def _values(factor: Factor, found: Span | Choice, is_free: bool, dice: Random) -> Iterator[Value]:
    """Values to try of a class: the usual one now and then where the class was not asked for, else as they fall."""
    if is_free and found.holds(factor.usual) and dice.random() < USUALLY:
        yield factor.usual
    for _ in range(TRIES if isinstance(found, Span) else 1):
        yield found.draw(dice)
