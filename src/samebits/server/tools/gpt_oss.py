"""gpt-oss: a call is a message of its own, addressed to a function.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The engine takes messages apart by their marks (engine/text.py), so there is nothing to look for in the text of an
answer; `addressed_call` reads a whole message.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits.server.tools.form import CallForm
from samebits.server.tools.lark import Rules
from samebits.server.tools.reading import Broken, ParsedCall, Reader, parse_json

NAMESPACE = "functions."


class GptOss(CallForm):
    name = "gpt_oss"
    is_parallel = False  # what ends a call ends the turn

    def read(self, opener: str) -> Reader[list[ParsedCall]]:
        raise Broken

    def written(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        before = ("<|channel|>", f"commentary to={NAMESPACE}{name} ", "<|constrain|>", "json", "<|message|>")
        return before, ("<|call|>",)

    def lead(self, rules: Rules) -> str:
        opened = rules.atoms(("<|channel|>", "analysis", "<|message|>"))
        return f"({opened} TEXT {rules.atoms(('<|end|>', '<|start|>', 'assistant'))})?"

    def plain(self, rules: Rules) -> str:
        return f"{rules.atoms(('<|channel|>', 'final', '<|message|>'))} TEXT"


def addressed_call(recipient: str, text: str) -> ParsedCall:
    """The call in a message to a recipient; Broken for text that is no JSON object."""
    arguments = parse_json(text)
    if not isinstance(arguments, dict):
        raise Broken
    return ParsedCall(recipient.removeprefix(NAMESPACE), arguments)
