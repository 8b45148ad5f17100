"""The form that an answer is held to, as grammars are compiled from it."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.server.grammar.wire import GRAMMAR, JSON_SCHEMA, LARK, REGEX

KINDS = {"json_schema": JSON_SCHEMA, "regex": REGEX, "lark": LARK, "grammar": GRAMMAR}


@dataclass(frozen=True)
class OutputFormat:
    """A kind and its text.

    kind    a key of KINDS
    source  a JSON schema, a regular expression, or a grammar: in llguidance's Lark, or for "grammar" in GBNF too
    param   the request's field that it came from, for messages
    """

    kind: str
    source: str
    param: str = "response_format"
