"""Llama 3.1 to 3.3: an object that begins the answer, or what follows the mark for Python.

{"name": "get_weather", "parameters": {"city": "Paris"}}
<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": ...}
<|python_tag|>get_weather.call(city="Paris")
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from samebits.server.tools.form import CallForm
from samebits.server.tools.lark import Rules
from samebits.server.tools.python_call import parse_python_call
from samebits.server.tools.reading import Broken, ParsedCall, Reader, after_blanks, call_of, json_text, parse_json

TAG = "<|python_tag|>"


class Llama3(CallForm):
    name = "llama3"
    openers = (TAG,)
    first_openers = ("{",)
    separators = " \t\r\n;"
    marks = (TAG,)
    between = ("; ",)

    def read(self, opener: str) -> Reader[list[ParsedCall]]:
        first = opener if opener == "{" else (yield from after_blanks())
        if first == "{":
            text = yield from json_text(first)
            return [call_of(parse_json(text), "parameters", "arguments")]
        if not first:
            raise Broken
        source = [first]
        while character := (yield):
            source.append(character)
        call = parse_python_call("".join(source))
        return [ParsedCall(call.name.removesuffix(".call"), call.arguments)]

    def written(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        return (f'{{"name": {json.dumps(name)}, "parameters": ',), ("}",)

    def plain(self, rules: Rules) -> str:
        return "OTHER"
