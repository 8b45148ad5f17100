"""The work that a JSON schema makes for the compiler, in units that are the same on every machine.

The compiler bounds most of its work itself (LIMITS in worker.py). Three things cost it far more than it counts, so they
are counted here, before it starts. A unit is about a microsecond on a core of 3 GHz. Other programs decide by seconds
of CPU time: then a grammar close to the bound compiles on one machine and not on another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from math import gcd, lcm
from typing import Any

MAX_WORK = 400_000
PROPERTY_PAIR_WORK = 0.1  # each property's name is excluded from the others' and from additional names
PATTERN_PAIR_WORK = 40  # each pattern of names is intersected with the others and with the properties' names
MULTIPLE_WORK = 10  # for each remainder of a `multipleOf`, and of the least common multiple of those that may be joined
JOINING = ("allOf", "$ref")  # names by which one number gets several multiples
SCHEMA_IN_LARK = re.compile(r"%json\s*(?=[{\[])")
TOO_LARGE = "a schema with too many properties in an object, patterns of their names, or too large a multipleOf"


def check_schema(schema: Any) -> None:
    """Raise ValueError if compiling this JSON schema is more than MAX_WORK."""
    if work_of(schema) > MAX_WORK:
        raise ValueError(TOO_LARGE)


def work_of(schema: Any) -> float:
    """Return the units of work for a schema and everything in it, whether it is referred to or not."""
    work, left = 0.0, [schema]
    multiples: set[Decimal] = set()
    is_joining = False
    while left:
        value = left.pop()
        if isinstance(value, dict):
            work += _object_work(value)
            multiples |= _multiple(value)
            is_joining = is_joining or any(name in value for name in JOINING)
            left += value.values()
        elif isinstance(value, list):
            left += value
    return work + (_multiple_work(_common_multiple(multiples)) if is_joining and len(multiples) > 1 else 0)


def _object_work(schema: dict[str, Any]) -> float:
    properties, patterns = (_size(schema.get(name)) for name in ("properties", "patternProperties"))
    pairs = properties**2 * PROPERTY_PAIR_WORK + patterns * (patterns + properties) * PATTERN_PAIR_WORK
    return pairs + sum(map(_multiple_work, _multiple(schema)))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict) else 0


def _multiple(schema: dict[str, Any]) -> set[Decimal]:
    """Return the object's `multipleOf`, or nothing if it has none that is a positive number."""
    value = schema.get("multipleOf")
    if type(value) not in (int, float):
        return set()
    exact = Decimal(repr(value))
    return {exact} if exact.is_finite() and exact > 0 else set()


def _common_multiple(multiples: set[Decimal]) -> Decimal:
    """Return the least common multiple, or some multiple of a few that is more than MAX_WORK already."""
    top, bottom = 1, 0
    for fraction in map(Fraction, multiples):
        top, bottom = lcm(top, fraction.numerator), gcd(bottom, fraction.denominator)
        if top > MAX_WORK:
            break
    return Decimal(top) / bottom


def _multiple_work(multiple: Decimal) -> int:
    """Return the work for its digits as a whole number: 0.25 needs 25 remainders."""
    digits = multiple.normalize().as_tuple().digits
    exponent = multiple.adjusted() - len(digits) + 1
    return int("".join(map(str, digits))) * 10 ** max(0, min(exponent, 9)) * MULTIPLE_WORK


def schemas_in(lark: str) -> Iterator[Any]:
    """Yield the JSON schemas that a grammar in Lark holds after %json."""
    decoder = json.JSONDecoder()
    for found in SCHEMA_IN_LARK.finditer(lark):
        try:
            yield decoder.raw_decode(lark, found.end())[0]
        except ValueError:
            continue  # the compiler says what is wrong with it
