"""The fields that hold an answer to a form, as several servers name them; each becomes an `OutputFormat`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from samebits.server.bodies.base import Body, Few, Off, Text
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.counting import at_most, bounded_text
from samebits.server.http.errors import bad_request
from samebits.server.limits import MAX_CHOICES

Choices = Annotated[Few[str], at_most(MAX_CHOICES), Field(min_length=1, max_length=MAX_CHOICES)]
Schema = str | dict[str, Any]
ANY_OBJECT = '{"type":"object"}'


class JsonSchema(Body, extra="forbid"):
    name: Text | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body, extra="forbid"):
    """`regex`, with a pattern, and `grammar`, with a grammar, are ours."""

    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    json_schema: JsonSchema | None = None
    pattern: str | None = None
    grammar: str | None = None
    _wanted: OutputFormat | None = None

    @property
    def wanted(self) -> OutputFormat | None:
        """None for plain text."""
        return self._wanted

    @model_validator(mode="after")
    def _take_wanted(self) -> ResponseFormat:
        """ApiError where parts are missing or too long."""
        needed = {"regex": "pattern", "json_schema": "json_schema", "grammar": "grammar"}.get(self.type)
        if needed and not getattr(self, needed):
            raise bad_request(f"response_format.{needed}", "nothing", f"a value, for type {self.type}")
        if self.type in ("regex", "grammar"):
            source = self.pattern if self.type == "regex" else self.grammar
            self._wanted = OutputFormat(self.type, bounded_text([source or ""]))
        elif self.type == "json_object":
            self._wanted = OutputFormat("json_schema", ANY_OBJECT)
        elif self.json_schema is not None and self.type == "json_schema":
            if self.json_schema.schema_ is None:
                raise bad_request("response_format.json_schema", "nothing", "an object with a schema")
            self._wanted = schema_format("response_format", self.json_schema.schema_)
        return self


class StructuredOutputs(Body, extra="forbid"):
    """vLLM's object: one constraint."""

    json_: Schema | None = Field(None, alias="json")
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: Off | None = None
    disable_additional_properties: Off | None = None

    def wanted(self, param: str) -> list[OutputFormat]:
        found = [
            *constraint(f"{param}.json", "json_schema", self.json_),
            *constraint(f"{param}.regex", "regex", self.regex),
            *constraint(f"{param}.choice", "choice", self.choice),
            *constraint(f"{param}.grammar", "grammar", self.grammar),
        ]
        return [*found, OutputFormat("json_schema", ANY_OBJECT, param)] if self.json_object else found


def schema_format(param: str, schema: Schema) -> OutputFormat:
    """A JSON schema, as text or as an object; ApiError where it is too long."""
    parts = [schema] if isinstance(schema, str) else json.JSONEncoder(separators=(",", ":")).iterencode(schema)
    return OutputFormat("json_schema", bounded_text(parts, param), param)


def constraint(param: str, kind: str, given: Any) -> list[OutputFormat]:
    """The one constraint that a field gives, or none where it is null."""
    if given is None:
        return []
    if kind == "json_schema":
        return [schema_format(param, given)]
    if kind == "choice":
        grammar = bounded_text(["start: ", " | ".join(map(json.dumps, given))], param)
        return [OutputFormat("lark", grammar, param)]
    return [OutputFormat(kind, bounded_text([given], param), param)]


def only_one(found: list[OutputFormat]) -> OutputFormat | None:
    """The constraint of a request; ApiError where it has several."""
    if len(found) > 1:
        names = " and ".join(f.param for f in found[:2])
        raise bad_request(found[1].param, names, "one of them: an answer is held to one form")
    return found[0] if found else None
