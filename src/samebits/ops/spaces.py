"""Spaces that ops of a kind share: ops on rows, and products with a weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

from samebits.core.format import FORMATS
from samebits.ops.blocks import ANY_BYTES
from samebits.ops.record import FLOATS, WEIGHTS
from samebits.ops.space import Choice, Factor, Row, Space, choice, setting, size

ABSENT = "none"
FINITE = (
    "normal",
    "special",
    "mixed",
    "halfway",
    "tiny",
    "large",
    "zeros",
    "zero-stretches",
    "spikes",
    "equal",
    "wide",
    "bounds",
    "faint",
    "beyond",
    "vast",
)
MOST_ROWS = 70_000  # beyond the 65,535 of a grid's smaller axes
MAKING = 30  # operations that making an element of an input is worth
WEIGHT_KINDS = (
    *("normal", "uniform", "mixed", "tiny", "large", "zeros", "zero-stretches", "spikes", "wide", "bounds", "faint"),
    "beyond",
    ANY_BYTES,
)


def number(row: Row, name: str) -> int:
    """A size of a row."""
    return int(row[name])


def at_least_one(row: Row, name: str) -> int:
    """A size as costs take it: nothing would be cheap at any width, and show nothing of it."""
    return max(1, number(row, name))


def leading(row: Row) -> tuple[int, ...]:
    """The leading axes: the row's `rows` over so many `axes`."""
    count, axes = number(row, "rows"), str(row["axes"])
    if axes == "0":
        return ()
    if axes == "1":
        return (count,)
    inner = next((d for d in (7, 5, 3, 2) if count and count % d == 0), 1)
    return (count // inner, inner) if axes == "2" else (count // inner, 1, inner)


def rows_fit(row: Row) -> bool:
    """A tensor without leading axes has one row."""
    return row.get("axes") != "0" or row.get("rows", 1) == 1


def formats_of(row: Row, names: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """(formats, names) of those inputs that are there."""
    there = {name: str(row[name]) for name in names if row[name] != ABSENT}
    return there, tuple(there)


def beyond_fits(row: Row, names: tuple[str, ...]) -> bool:
    """Whether all these inputs are there and hold what is drawn, where that lies beyond float16."""
    return row.get("values") != "beyond" or all(row.get(name, "f32") in ("f32", "bf16") for name in names)


def row_space(
    *,
    inputs: tuple[str, ...] = ("x",),
    optional: tuple[str, ...] = (),
    width: str = "K",
    most: int = 32_768,
    values: tuple[str, ...] = FINITE,
    rare_values: tuple[str, ...] = (),
    attrs: dict[str, dict[str, Any]] | None = None,
    others: tuple[Factor, ...] = (),
    extra: Callable[[Row], dict[str, Any]] = lambda row: {},
    given: Callable[[Row], tuple[str, ...]] = lambda row: (),
    fits: Callable[[Row], bool] = lambda row: True,
    crossed: tuple[tuple[str, ...], ...] = (),
    corners: tuple[str, ...] = (),
    operations: int = 1,
    padded: int = 0,
    widest: int | None = None,
) -> Space:
    """Of an op on independent rows "... width": rows, axes, widths, a format for every input, contents, attrs by label.

    `others` are factors that `extra(row)` turns into what the op's own input maker reads, and `given(row)` into the
    names of further optional inputs. `operations` are those of an element, in units of making it, `padded` those of
    a row however narrow it is. Widths from `most` to `widest` and `rare_values` are those of corners. Three inputs
    meet in every combination of their formats.
    """
    settings = attrs or {}
    factors = (
        size("rows", MOST_ROWS, least=0, usual=3),
        choice("axes", "1", "0", "2", "3"),
        size(width, most, usual=64, corners=widest),
        *(setting(name, *FLOATS) for name in inputs),
        *(setting(name, ABSENT, *FLOATS) for name in optional),
        replace(choice("values", *values), rare=tuple(map(Choice, rare_values))),
        *(setting(name, *labels) for name, labels in settings.items()),
        *others,
    )
    if len(inputs) + len(optional) == 3:
        corners = (*corners, *format_corners(inputs, optional))

    def case(row: Row) -> dict[str, Any]:
        formats, present = formats_of(row, (*inputs, *optional))
        return {
            "dims": {"...": leading(row), width: number(row, width)},
            "attrs": {name: labels[str(row[name])] for name, labels in settings.items()},
            "formats": formats,
            "given": (*present, *given(row)),
            "extra": {"values": row["values"], **extra(row)},
        }

    return Space(
        factors,
        case,
        lambda row: at_least_one(row, "rows") * (MAKING * len(inputs) * number(row, width) * operations + padded),
        lambda row: rows_fit(row) and beyond_fits(row, (*inputs, *optional)) and fits(row),
        crossed,
        (*corners, *(() if widest is None else (f"rows=2,{width}={widest}",))),
    )


def format_corners(inputs: tuple[str, ...], optional: tuple[str, ...]) -> tuple[str, ...]:
    """Return a row for every combination of formats: a kernel may read one input in the format of another."""
    labels = [[f"{name}={label}" for label in FLOATS] for name in inputs]
    labels += [[f"{name}={label}" for label in (ABSENT, *FLOATS)] for name in optional]
    return tuple(map(",".join, product(*labels)))


def block_multiple(row: Row, weight: str = "weight", width: str = "K") -> bool:
    """Whole blocks along the width."""
    return not {weight, width} <= row.keys() or number(row, width) % FORMATS[str(row[weight])].block_len == 0


def weight_factors(formats: tuple[str, ...] = WEIGHTS, kinds: tuple[str, ...] = WEIGHT_KINDS) -> tuple[Factor, ...]:
    return setting("weight", *formats), choice("weights", *kinds)


def distinct(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """One attr's values under labels that show them."""
    return {name: {str(v): v for v in choices} for name, choices in values.items()}


def volume(*names: str) -> Callable[[Row], int]:
    """What a tensor of these sizes costs to make."""
    return lambda row: MAKING * math.prod(at_least_one(row, name) for name in names)
