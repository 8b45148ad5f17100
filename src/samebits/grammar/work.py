"""The work that a JSON schema makes for the compiler, in units that are the same on every machine.

The compiler bounds most of its work itself (LIMITS in worker.py). Three things cost it far more than it counts, so they
are counted here, before it starts. A unit is about a microsecond on a core of 3 GHz. Other programs decide by seconds
of CPU time: then a grammar close to the bound compiles on one machine and not on another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from decimal import Decimal
from itertools import accumulate
from math import inf, lcm
from typing import Any

from samebits.grammar.multiples import joined_multiples, multiples_of, objects_in

MAX_WORK = 400_000
PROPERTY_PAIR_WORK = 0.1  # each property's name is excluded from the others' and from additional names
PATTERN_PAIR_WORK = 40  # each pattern of names is intersected with the others and with the properties' names
MULTIPLE_WORK = 10  # for each remainder of a `multipleOf`, and of the least common multiple of those that are joined
MAX_PRODUCT = (1 << 32) - 1  # of two multiples, without their points: the compiler multiplies them in 32 bits
SCHEMA_IN_LARK = re.compile(r"%json\s*(?=[{\[])")
TOO_LARGE = "a schema with too many properties in an object, patterns of their names, or too large a multipleOf"


def check_schema(schema: Any) -> None:
    """Raise ValueError if compiling this JSON schema is more than MAX_WORK."""
    if work_of(schema) > MAX_WORK:
        raise ValueError(TOO_LARGE)


def work_of(schema: Any) -> float:
    """Return the units of work for a schema and everything in it, whether it is referred to or not."""
    work = sum(map(_object_work, objects_in(schema)), 0.0)
    return work + sum(map(_joined_work, joined_multiples(schema)))


def _object_work(schema: dict[str, Any]) -> float:
    properties, patterns = (_size(schema.get(name)) for name in ("properties", "patternProperties"))
    pairs = properties**2 * PROPERTY_PAIR_WORK + patterns * (patterns + properties) * PATTERN_PAIR_WORK
    return pairs + sum(map(_multiple_work, multiples_of(schema)))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict) else 0


def _joined_work(multiples: Collection[Decimal]) -> float:
    """Return the work for the least common multiple, which is infinite if computing it may exceed MAX_PRODUCT."""
    places = max(0, *(-int(multiple.normalize().as_tuple().exponent) for multiple in multiples))
    if max(multiple.adjusted() for multiple in multiples) + places >= len(str(MAX_PRODUCT)):
        return inf
    numbers = [int(multiple.scaleb(places)) for multiple in multiples]
    *before, common = accumulate(numbers, _bounded_lcm, initial=1)
    *after, _ = accumulate(reversed(numbers), _bounded_lcm, initial=1)
    for number, *others in zip(numbers, before, reversed(after), strict=True):
        if _bounded_lcm(*others) * number > MAX_PRODUCT:
            return inf  # if this number is the last to be joined
    return _multiple_work(Decimal(common).scaleb(-places))


def _bounded_lcm(a: int, b: int) -> int:
    """Return the least common multiple of two numbers, or a number above MAX_PRODUCT if it is above that."""
    return min(lcm(a, b), MAX_PRODUCT + 1)


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
