"""The `multipleOf` values that the compiler joins: a number with several of them gets their least common multiple.

A schema joins its parts: its own keywords, its `patternProperties`, the target of its `$ref`, each schema of `allOf`,
and the alternatives of `anyOf` and of `oneOf`. The values of two parts meet where both reach numbers under one key: a
property's name, or that the number is an item of an array. A key stands for all numbers under it, however deep they
are. So this module may find more values to meet than the compiler joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

MAX_VISITS = 50_000  # of subschemas, in which some 0.1 s pass; then all multiples of the schema count as one set


@dataclass(frozen=True)
class Place:
    """A key that is not a property's name."""

    kind: str


@dataclass(frozen=True)
class Reference:
    """The value of a `$ref`."""

    text: str


HERE, ITEM, ANY_NAME, ANYWHERE = map(Place, ("the value itself", "an item", "a property of any name", "anywhere"))
Key = str | Place
Part = list[tuple[Key, Any]]  # keys and what they lead to: a schema, a Reference, or the Decimal of a multiple


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a value, including the value itself."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            yield item
            left += item.values()
        elif isinstance(item, list):
            left += item


def multiples_of(schema: dict[str, Any]) -> set[Decimal]:
    """Return the object's `multipleOf`, or nothing if it has none that is a positive number."""
    value = schema.get("multipleOf")
    if type(value) not in (int, float):
        return set()
    exact = Decimal(repr(value))
    return {exact} if exact.is_finite() and exact > 0 else set()


def joined_multiples(root: Any) -> Iterator[frozenset[Decimal]]:
    """Yield each set of two or more multiples that meet somewhere in a schema, or one set of all if it is too large."""
    everything = frozenset(multiple for schema in objects_in(root) for multiple in multiples_of(schema))
    if len(everything) < 2:
        return
    sets: set[frozenset[Decimal]] = set()
    num_left = MAX_VISITS
    for schema in objects_in(root):
        parts = _parts_of(schema)
        if len(parts) < 2:
            continue
        reached = []
        for part in parts:
            found, num_visits = _reached(part, root, everything, num_left)
            num_left -= num_visits
            reached.append(found)
        if num_left <= 0:
            yield everything
            return
        sets.update(_met([found for found in reached if found]))
    yield from sets


def _parts_of(schema: dict[str, Any]) -> list[Part]:
    """Return the parts that apply to the same value as the schema."""
    own: Part = [(HERE, multiple) for multiple in multiples_of(schema)]
    own += _values(schema.get("properties"))
    own.append((ANY_NAME, schema.get("additionalProperties")))
    own += [(ITEM, schema.get("additionalItems")), *_each(ITEM, schema.get("prefixItems"))]
    items = schema.get("items")
    own += _each(ITEM, items if isinstance(items, list) else [items])
    parts: list[Part] = [own, [(ANY_NAME, child) for _, child in _values(schema.get("patternProperties"))]]
    if isinstance(reference := schema.get("$ref"), str):
        parts.append([(HERE, Reference(reference))])
    parts += [[(HERE, child)] for _, child in _each(HERE, schema.get("allOf"))]
    parts += [_each(HERE, schema.get(name)) for name in ("anyOf", "oneOf")]
    kept = ([(key, child) for key, child in part if isinstance(child, (dict, Reference, Decimal))] for part in parts)
    return [part for part in kept if part]


def _values(schemas: Any) -> Part:
    return list(schemas.items()) if isinstance(schemas, dict) else []


def _each(key: Key, schemas: Any) -> Part:
    return [(key, schema) for schema in schemas] if isinstance(schemas, list) else []


def _reached(
    part: Part, root: Any, everything: Iterable[Decimal], max_visits: int
) -> tuple[dict[Key, set[Decimal]], int]:
    """Return the multiples that a part reaches, by their keys, and the number of visits that this has taken."""
    found: dict[Key, set[Decimal]] = {}
    seen: set[tuple[Key, int]] = set()
    left, num_visits = list(part), 0
    while left and num_visits < max_visits:
        key, child = left.pop()
        num_visits += 1
        if isinstance(child, Decimal):
            found.setdefault(key, set()).add(child)
            continue
        if isinstance(child, Reference):
            child = _target(child.text, root)
            if child is None:
                found.setdefault(ANYWHERE, set()).update(everything)
        if isinstance(child, dict) and (key, id(child)) not in seen:
            seen.add((key, id(child)))
            left += ((key if step == HERE else step, below) for inner in _parts_of(child) for step, below in inner)
    return found, num_visits


def _target(reference: str, root: Any) -> Any:
    """Return what a reference leads to, or None if it is not a path from the root."""
    if not reference.startswith("#"):
        return None
    path, value = unquote(reference[1:]), root
    if path and not path.startswith("/"):
        return None
    for step in path.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 9:
            value = dict(enumerate(value)).get(int(name))
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _met(parts: list[dict[Key, set[Decimal]]]) -> Iterator[frozenset[Decimal]]:
    """Yield the sets of multiples that two or more parts reach under one key."""
    if len(parts) < 2:
        return
    for key in {key for part in parts for key in part}:
        matching = {key, ANYWHERE} | ({ANY_NAME} if isinstance(key, str) else set())
        multiples = [set().union(*(part.get(k, set()) for k in matching)) for part in parts]
        together = frozenset().union(*multiples)
        if sum(map(bool, multiples)) > 1 and len(together) > 1:
            yield together
