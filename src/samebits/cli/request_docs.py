"""Writes docs/requests.md from the fields that the server checks (`make docs`); a test fails when it is stale."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from samebits.server.bodies.base import Body
from samebits.server.bodies.fields import ACCEPTED, REFUSED, accepted_by, refused_by
from samebits.server.bodies.openai import ChatBody, CompletionBody, Sampling
from samebits.server.protocols.messages_body import MessagesBody
from samebits.server.protocols.ollama_body import OllamaChatBody, OllamaGenerateBody, Options
from samebits.server.protocols.rerank import RerankBody
from samebits.server.protocols.responses_body import ResponsesBody

HEAD = """# What requests may say

Generated from the server's own tables by `make docs`; do not edit. [serve.md](serve.md) is about the server as a whole.

Fields of /v1/chat/completions and /v1/completions, as OpenAI, vLLM, llama-server and SGLang know them, are honoured,
refused by name, or have no effect on any answer. A field that is in no table here is refused too, with status 400 and
the code `unknown_parameter`: it may be a constraint, and a constraint is never ignored. null is the same as no field.
"""
PROTOCOLS: dict[str, type[Body]] = {
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/api/chat": OllamaChatBody,
    "/api/generate": OllamaGenerateBody,
    "`options` of both": Options,
    "/v1/rerank": RerankBody,
}
OTHERS = """## Other protocols

The bodies of /v1/responses and /v1/messages, and `options` of Ollama's, may also hold the fields of both routes above,
beside their own; `n` is 1, and a prompt's log-probabilities have no place there. What both routes refuse is refused,
and so is any other field.
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


def _protocols() -> Iterator[str]:
    """What each protocol has beside the shared fields."""
    for route, kind in PROTOCOLS.items():
        shared = Sampling.model_fields if issubclass(kind, Sampling) else {}
        yield from (f"### {route}", "", "| field | |", "|---|---|")
        for name, field in kind.model_fields.items():
            if name not in shared:
                shown = ", ".join(f"`{n}`" for n in kind.names()[name])
                yield f"| {shown} | {field.description or 'what is to be answered'} |"
        for name, row in kind.refused.items():
            harmless = ", ".join(f"`{json.dumps(value)}`" for value in row.harmless)
            yield f"| `{name}` | refused{f' unless {harmless}' if harmless else ''}: {row.asks} |"
        for name, why in kind.accepted.items():
            yield f"| `{name}` | without effect: {why} |"
        yield ""


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
    return "\n".join([*lines, "", OTHERS, *_protocols()]).rstrip() + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(requests_markdown(), encoding="utf-8")
