"""Mistral's: a mark, then a list of objects; in newer vocabularies a name and its arguments, apart by a mark.

[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]
[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]...
[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Paris"}
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from samebits.server.tools.form import CallForm
from samebits.server.tools.reading import Broken, ParsedCall, Reader, after_blanks, call_of, json_text, parse_json

CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
MAX_NAME_CHARS = 256


class Mistral(CallForm):
    name = "mistral"
    openers = (CALLS,)
    marks = (CALLS, ARGS, CALL_ID)

    def read(self, opener: str) -> Reader[list[ParsedCall]]:
        first = yield from after_blanks()
        if first == "[":
            values = parse_json((yield from json_text(first)))
            return [call_of(value, "arguments") for value in values]
        head = first
        while not head.endswith("{"):
            character = yield
            if not character or len(head) > MAX_NAME_CHARS:
                raise Broken
            head += character
        arguments = parse_json((yield from json_text("{")))
        name = head[:-1].strip().removesuffix(ARGS).partition(CALL_ID)[0].strip()
        return [ParsedCall(name, arguments)]

    def written(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        return (CALLS, f'[{{"name": {json.dumps(name)}, "arguments": '), ("}]",)


class NewMistral(Mistral):
    """Reads as `Mistral` does; its grammars write what newer vocabularies were trained on."""

    name = "mistral-args"

    def written(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        return (CALLS, name, ARGS), ()
