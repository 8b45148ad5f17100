"""Covering pairs: a few combinations in which every pair of values of any two factors meets.

A product of six factors is thousands of cases; most defects need only two of them to coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

Row = dict[str, Any]
Pair = tuple[str, Any, str, Any]


def pairwise(factors: dict[str, tuple[Any, ...]], allowed: Callable[[Row], bool]) -> list[Row]:
    """Rows, each with a value for every factor, that together hold every pair an allowed row can hold.

    `allowed` judges partial rows too: it must not refuse a row that some completion makes valid.
    Deterministic: the same factors give the same rows.
    """
    open_pairs: dict[Pair, None] = {}
    for (a, a_values), (b, b_values) in combinations(factors.items(), 2):
        for x in a_values:
            for y in b_values:
                if _complete({a: x, b: y}, factors, allowed, {}) is not None:
                    open_pairs[a, x, b, y] = None
    rows = []
    while open_pairs:
        a, x, b, y = next(iter(open_pairs))
        row = _complete({a: x, b: y}, factors, allowed, open_pairs)
        if row is None:
            raise ValueError(f"no row holds {a}={x} and {b}={y}")
        rows.append(row)
        for pair in _pairs(row, factors):
            open_pairs.pop(pair, None)
    return rows


def _pairs(row: Row, factors: dict[str, tuple[Any, ...]]) -> list[Pair]:
    present = [name for name in factors if name in row]
    return [(a, row[a], b, row[b]) for a, b in combinations(present, 2)]


def _complete(
    row: Row, factors: dict[str, tuple[Any, ...]], allowed: Callable[[Row], bool], wanted: dict[Pair, None]
) -> Row | None:
    """The row filled up, each value chosen to meet as many wanted pairs as it can; None if no filling is allowed."""
    if not allowed(row):
        return None
    missing = [name for name in factors if name not in row]
    if not missing:
        return {name: row[name] for name in factors}
    name = missing[0]

    def gain(value: Any) -> int:
        return sum(pair in wanted for pair in _pairs({**row, name: value}, factors))

    for value in sorted(factors[name], key=gain, reverse=True) if wanted else factors[name]:
        full = _complete({**row, name: value}, factors, allowed, wanted)
        if full is not None:
            return full
    return None
