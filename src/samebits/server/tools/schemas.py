"""The schema that a grammar holds a call's arguments to."""

from __future__ import annotations

from typing import Any

NAMED = ("properties", "$defs", "definitions")  # keys of a schema whose values are schemas by name ...
LISTED = ("anyOf", "oneOf", "prefixItems")  # ... and schemas in a list
COMBINED = ("allOf", "$ref", "patternProperties", "unevaluatedProperties")  # objects that are described elsewhere too


def closed(schema: Any) -> Any:
    """The same schema, but objects have the properties that it names and no others, where it does not say.

    A function has no use for arguments that it does not know, and a small model finds no end of them.
    """
    if not isinstance(schema, dict):
        return schema
    told = dict(schema)
    for key in NAMED:
        if isinstance(told.get(key), dict):
            told[key] = {name: closed(part) for name, part in told[key].items()}
    for key in LISTED:
        if isinstance(told.get(key), list):
            told[key] = [closed(part) for part in told[key]]
    if "items" in told:
        told["items"] = closed(told["items"])
    if "properties" in told and not any(key in told for key in COMBINED):
        told.setdefault("additionalProperties", False)
    return told
