"""Tools for a model whose chat template knows none: a section of the system prompt, and calls and results as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from samebits.server.http.json_output import spaced_json_text
from samebits.server.tools.offer import Tool

SECTION = """You can call functions. Each line between <tools> and </tools> describes one, with its parameters as a \
JSON schema:
<tools>
{tools}
</tools>
To call a function, write its name and arguments as a JSON object between <tool_call> and </tool_call>, like this:
<tool_call>
{{"name": "the function's name", "arguments": {{"a parameter": "its value"}}}}
</tool_call>
The result comes in the next message, between <tool_response> and </tool_response>. Where no function helps, answer as \
usual."""


def as_text(messages: Sequence[dict[str, Any]], tools: Sequence[Tool], takes_system: bool) -> list[dict[str, Any]]:
    """The same conversation of system, user and assistant messages alone; results that follow each other are one.

    takes_system   whether the template takes a system message; else the section stands before the first message
    """
    told: list[dict[str, Any]] = []
    for are_results, group in groupby(messages, key=lambda message: message["role"] == "tool"):
        if are_results:
            texts = (f"<tool_response>\n{message['content']}\n</tool_response>" for message in group)
            told.append({"role": "user", "content": "\n".join(texts)})
        else:
            told += [{"role": message["role"], "content": _with_calls(message)} for message in group]
    if tools:
        section = SECTION.format(
            tools="\n".join(json.dumps(t.as_dict()["function"], ensure_ascii=False) for t in tools)
        )
        if told and told[0]["role"] == "system":
            told[0]["content"] += "\n\n" + section
        elif told and not takes_system:
            told[0]["content"] = section + "\n\n" + told[0]["content"]
        else:
            told.insert(0, {"role": "system", "content": section})
    return told


def _with_calls(message: dict[str, Any]) -> str:
    """A message's content, followed by its calls in the form that SECTION asks for."""
    parts = [message["content"]] if message["content"] else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        text = spaced_json_text({"name": function["name"], "arguments": function["arguments"]})
        parts.append(f"<tool_call>\n{text}\n</tool_call>")
    return "\n".join(parts)
