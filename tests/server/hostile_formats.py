"""Response formats that are small to say and large to compile or to follow."""

from __future__ import annotations

import json
from typing import Any


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


def regex_format(pattern: str) -> dict[str, Any]:
    return {"type": "regex", "pattern": pattern}


def endless(number: int) -> dict[str, Any]:
    """A schema that no machine compiles; another for each number."""
    return schema_format({"allOf": [{"type": "string", "pattern": f"x.*{number}{i}.*y"} for i in range(200)]})


def _doubling(num_levels: int, width: int) -> dict[str, Any]:
    """References that lead to `width` to the power of `num_levels` places."""
    levels = {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * width} for i in range(num_levels)}
    return {"$ref": "#/$defs/n0", "$defs": {**levels, f"n{num_levels}": {"type": "null"}}}


HOSTILE = {
    "patterns in allOf": endless(0),
    "counted repeats": regex_format("((((a{1,200}){1,200}){1,200}){1,200}){1,200}"),
    "intersections": regex_format("&".join(f"(.*{a}.*{b}.*)" for a in "abcdefgh" for b in "ijklmnop")),
    "nested groups": regex_format("(" * 5000 + "a" + ")" * 5000),
    "nested items": schema_format(json.loads('{"items":' * 100 + "{}" + "}" * 100)),
    "references to references": schema_format(_doubling(12, 12)),
    "alternatives of all": schema_format(
        {"allOf": [{"anyOf": [{"type": "string", "pattern": f"{i}.*{j}"} for j in range(9)]} for i in range(9)]}
    ),
    "a reference to itself": schema_format({"$ref": "#"}),
    "many names": schema_format({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(8000)}}),
    "long bounds": schema_format({"type": "array", "minItems": 10**9, "items": {"type": "string", "minLength": 10**9}}),
    "multiples": schema_format({"allOf": [{"type": "integer", "multipleOf": p} for p in (7, 11, 13, 17, 19, 23, 29)]}),
    "late decisions": regex_format("(a|b)*a(a|b){400}"),
}
