"""Pydantic's refusals of a body as our own: which field is wrong, what was given, and what is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import ErrorDetails

MAX_SHOWN, MAX_NAME_CHARS = 80, 200
BRANCHES = frozenset({"str", "int", "float", "bool"})  # a union's members in a location, beside classes
BOUND_CROSSED = frozenset({"greater_than", "greater_than_equal", "less_than_equal", "less_than"})
LENGTH_CROSSED = frozenset({"string_too_short", "string_too_long", "too_short", "too_long"})
NEEDED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "none_required": "nothing",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "at most {max_length}",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    "missing": "a value",
    "extra_forbidden": "nothing: this server does not know the field",
    "value_error": "{error}",
}


def shown(value: Any) -> str:
    """A JSON value in a few words, however large it is."""
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return json.dumps(value[: MAX_SHOWN + 1] if isinstance(value, str) else value)


@cache
def ranges_of(kind: type[BaseModel]) -> dict[str, str]:
    """Return the range of every number of a body that has two bounds, under each name of its field."""
    found: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        stated = (*field.metadata, *_metadata(field.annotation))
        limits = {
            bound: getattr(part, bound) for part in stated for bound in ("gt", "ge", "le", "lt") if hasattr(part, bound)
        }
        high = limits.get("le", limits["lt"] - 1 if "lt" in limits else None)  # lt is for integers
        if high is not None and limits.keys() & {"gt", "ge"}:
            alias = field.validation_alias
            names = alias.choices if isinstance(alias, AliasChoices) else [alias or name]
            found |= dict.fromkeys(map(str, names), _range(limits.get("gt"), limits.get("ge"), high))
    return found


def _range(above: float | None, low: float | None, high: float) -> str:
    """Return a range in words; its lower end is `low`, or all that is more than `above`."""
    if above is not None:
        return f"more than {above} and at most {high}"
    return f"{high}" if low == high else f"from {low} to {high}"


def _metadata(annotation: Any) -> Iterator[Any]:
    """Yield what Annotated states of a type, or of the members of a union."""
    if get_origin(annotation) is Annotated:
        for part in get_args(annotation)[1:]:
            yield from getattr(part, "metadata", [part])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _metadata(member)


def first_refusal(error: ValidationError, kind: type[BaseModel] | None = None) -> tuple[str, str, str]:
    """Return the field, what it is given, and what is needed, of the first value that is wrong.

    kind  the body that was read, whose ranges are stated whole instead of the bound that was crossed

    A value that fits no member of a union is wrong once per member. If its inside is wrong, the inside is named.
    """
    details = error.errors(include_url=False)
    first_field = details[0]["loc"][:1]
    same_field = [detail for detail in details if detail["loc"][:1] == first_field]
    depth = max(len(_path(detail)) for detail in same_field)
    found = [detail for detail in same_field if len(_path(detail)) == depth]
    of_one_value = [detail for detail in found if _path(detail) == _path(found[0])]
    # a value whose type fits one member of a union needs another length, and no other type
    of_one_value = [detail for detail in of_one_value if detail["type"] in LENGTH_CROSSED] or of_one_value
    needed = " or ".join(dict.fromkeys(map(_needed, of_one_value)))
    if kind is not None and details[0]["type"] in BOUND_CROSSED and len(details[0]["loc"]) == 1:
        needed = ranges_of(kind).get(str(details[0]["loc"][0]), needed)
    return ".".join(_path(found[0]))[:MAX_NAME_CHARS] or "body", _given(of_one_value[0]), needed


def _path(detail: ErrorDetails) -> list[str]:
    """Return the names and indices that lead to the value, without the members of unions."""
    return [str(part) for part in detail["loc"] if isinstance(part, int) or _is_name(part)]


def _is_name(part: str) -> bool:
    return part.isidentifier() and part not in BRANCHES and not part[0].isupper()


def _given(detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "missing":
        return "nothing"
    if kind in ("too_short", "too_long"):
        return f"{len(value)} items"
    return f"{len(value)} characters" if kind == "string_too_long" else shown(value)


def _needed(detail: ErrorDetails) -> str:
    context: Mapping[str, Any] = detail.get("ctx", {})
    plain = {name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()}
    return NEEDED.get(detail["type"], "another value").format(**plain)
