"""Writes docs/requests.md from the fields that the server checks (`make docs`); a test fails when it is stale."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from samebits.server.base_body import Body
from samebits.server.fields import ACCEPTED, REFUSED, accepted_by, refused_by
from samebits.server.protocol import ChatBody, CompletionBody, Sampling

HEAD = """# What requests may say

Generated from the server's own tables by `make docs`; do not edit. [serve.md](serve.md) is about the server as a whole.

Fields of /v1/chat/completions and /v1/completions, as OpenAI, vLLM, llama-server and SGLang know them, are honoured,
refused by name, or have no effect on any answer. A field that is in no table here is refused too, with status 400 and
the code `unknown_parameter`: it may be a constraint, and a constraint is never ignored. null is the same as no field.
"""
ROUTES: dict[type[Body], str] = {ChatBody: "chat", CompletionBody: "completions"}


def _honoured(title: str, kind: type[Body], names: Iterator[str]) -> list[str]:
    lines = [f"### {title}", "", "| field | |", "|---|---|"]
    for name in names:
        shown = ", ".join(f"`{n}`" for n in kind.names()[name])
        lines.append(f"| {shown} | {kind.model_fields[name].description} |")
    return [*lines, ""]


def _routes(name: str, of: Callable[[type[Body]], Mapping[str, Any]]) -> str:
    return ", ".join(route for kind, route in ROUTES.items() if name in of(kind))


def requests_markdown() -> str:
    """The whole page."""
    shared = [name for name in Sampling.model_fields if name != "model"]
    lines = [HEAD, "## Honoured", ""]
    lines += _honoured("Both routes", Sampling, iter(["model", *shared]))
    for kind, title in ((ChatBody, "Chat"), (CompletionBody, "Completions")):
        lines += _honoured(title, kind, (n for n in kind.model_fields if n not in Sampling.model_fields))
    lines += ["## Refused", "", "Except with a value that asks for nothing, or null.", ""]
    lines += ["| field | asks for | values that do not | routes |", "|---|---|---|---|"]
    for name, (_, row) in REFUSED.items():
        if routes := _routes(name, refused_by):
            harmless = ", ".join(f"`{json.dumps(value)}`" for value in row.harmless)
            lines.append(f"| `{name}` | {row.asks} | {harmless} | {routes} |")
    lines += ["", "## Without effect", "", "| field | why | routes |", "|---|---|---|"]
    for name, (_, why) in ACCEPTED.items():
        lines.append(f"| `{name}` | {why} | {_routes(name, accepted_by)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(requests_markdown())
