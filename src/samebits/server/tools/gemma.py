"""Gemma's: Google's two ways of asking it for calls, and FunctionGemma's own.

```tool_code
get_weather(city="Paris")
```
```tool_code
{"name": "get_weather", "parameters": {"city": "Paris"}}
```
<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from samebits.server.tools.form import CallForm
from samebits.server.tools.python_call import parse_python_call
from samebits.server.tools.reading import Broken, ParsedCall, Reader, call_of, parse_json, until

CODE, FENCE = "```tool_code", "```"
START, END, ESCAPE = "<start_function_call>", "<end_function_call>", "<escape>"
MAX_DEPTH = 64
_HEAD = re.compile(r"\s*call:([^{}\s]+)\s*(?=\{)")
_KEY = re.compile(r"\s*([^:{}\[\],\s]+)\s*:\s*")
_WORD = re.compile(r"[^,{}\[\]]+")


class Gemma(CallForm):
    name = "gemma"
    openers = (CODE, START)
    marks = (START, END, ESCAPE)
    between = ("\n",)

    def read(self, opener: str) -> Reader[list[ParsedCall]]:
        if opener == CODE:
            text = (yield from until(FENCE)).strip()
            if text.startswith("{"):
                return [call_of(parse_json(text), "parameters", "arguments")]
            return [parse_python_call(text)]
        text = yield from until(END)
        head = _HEAD.match(text)
        if head is None:
            raise Broken
        arguments, end = _value(text, head.end(), 0)
        if text[end:].strip() or not isinstance(arguments, dict):
            raise Broken
        return [ParsedCall(head[1], arguments)]

    def written(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        return (CODE, f'\n{{"name": {json.dumps(name)}, "parameters": '), ("}\n" + FENCE,)


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    """FunctionGemma's value that begins there, and where it ends: text between marks, an object, a list or a word."""
    if depth > MAX_DEPTH:
        raise Broken
    if text.startswith(ESCAPE, at):
        start = at + len(ESCAPE)
        end = text.find(ESCAPE, start)
        if end < 0:
            raise Broken
        return text[start:end], end + len(ESCAPE)
    if text[at : at + 1] in ("{", "["):
        return _collection(text, at, depth)
    word = _WORD.match(text, at)
    if word is None:
        raise Broken
    return parse_json(word[0].strip()), word.end()


def _collection(text: str, at: int, depth: int) -> tuple[Any, int]:
    is_object = text[at] == "{"
    end, at = "}" if is_object else "]", at + 1
    items: list[Any] = []
    named: dict[str, Any] = {}
    while text[at : at + 1] != end:
        if items or named:
            if text[at : at + 1] != ",":
                raise Broken
            at += 1
        if is_object:
            key = _KEY.match(text, at)
            if key is None:
                raise Broken
            named[key[1]], at = _value(text, key.end(), depth + 1)
        else:
            value, at = _value(text, at, depth + 1)
            items.append(value)
    return (named if is_object else items), at + 1
