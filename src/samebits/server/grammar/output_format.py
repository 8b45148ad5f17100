"""The form that an answer is held to, as grammars are compiled from it."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.receipts.record import Grammar


@dataclass(frozen=True)
class OutputFormat:
    """A kind and its text.

    kind    a key of grammar.wire.KINDS
    source  a JSON schema, a regular expression, or a grammar: in llguidance's Lark, or for "grammar" in GBNF too
    param   the request's field that it came from, for messages
    """

    kind: str
    source: str
    param: str = "response_format"

    def stated(self) -> Grammar:
        """The same for a receipt."""
        return Grammar(self.kind, self.source)
