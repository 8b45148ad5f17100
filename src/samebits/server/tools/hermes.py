"""Hermes 2 and 3, Qwen 2.5 and 3, and models without a form of their own: an object within tags.

<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from samebits.server.tools.form import CallForm
from samebits.server.tools.reading import ParsedCall, Reader, after_blanks, call_of, expect, json_text, parse_json


class Hermes(CallForm):
    name = "hermes"
    openers = ("<tool_call>",)
    marks = ("<tool_call>", "</tool_call>")
    between = ("\n",)

    def read(self, opener: str) -> Reader[list[ParsedCall]]:
        text = yield from json_text((yield from after_blanks()))
        yield from expect("</tool_call>", (yield from after_blanks()))
        return [call_of(parse_json(text), "arguments", "parameters")]

    def written(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        return ("<tool_call>", f'\n{{"name": {json.dumps(name)}, "arguments": '), ("}\n", "</tool_call>")
