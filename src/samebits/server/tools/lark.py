"""Rules in llguidance's Lark: marks that are control tokens of a vocabulary, text up to a mark, reasoning first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from samebits.engine.reasoning import ThinkMarks
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.counting import bounded_text

ESCAPED_OR_LOOSE = re.compile(r"\\.|/|\n", re.DOTALL)  # what is escaped in a regular expression, or must be in Lark's
LOOSE = {"/": r"\/", "\n": r"\n"}
EMPTY = "(?:)"  # since two slashes begin a comment
Control = Callable[[str], int | None]  # the id of the control token with this text
HEAD = (
    "%llguidance {}",
    r"TEXT: /(.|\n)*/",
    r"BLANKS: /[ \t\r\n]*/",
    r"OTHER: /([^\s{](.|\n)*)?/",  # text that does not begin as an object does
)


class Rules:
    """The rules of one grammar, added one by one; `start` comes last, with `format`."""

    def __init__(self, control: Control) -> None:
        self._control, self._rules = control, list(HEAD)

    def add(self, name: str, body: str) -> str:
        """Adds a rule; returns its name."""
        self._rules.append(f"{name}: {body}")
        return name.partition("[")[0]

    def atoms(self, texts: Iterable[str]) -> str:
        """Texts one after another, each a control token or plain."""
        ids = [(text, self._control(text)) for text in texts]
        return " ".join(json.dumps(text) if number is None else f"<[{number}]>" for text, number in ids)

    def up_to(self, name: str, mark: str) -> str:
        """Any text, and the mark that ends it; `name` is free for a rule."""
        if self._control(mark) is not None:
            return f"TEXT {self.atoms([mark])}"
        return self.add(f"{name}[lazy]", f"TEXT {json.dumps(mark)}")

    def reasoning(self, marks: ThinkMarks | None, is_open: bool) -> str:
        """Reasoning, which must come first where the prompt has opened it, and else may."""
        if marks is None:
            return ""
        rest = f"{self.up_to('thought', marks.closing)} BLANKS"
        return rest if is_open else f"({self.atoms([marks.opening])} {rest})?"

    def format(self, start: str, param: str) -> OutputFormat:
        self.add("start", start)
        return OutputFormat("lark", bounded_text((f"{rule}\n" for rule in self._rules), param), param)


def part_of(wanted: OutputFormat) -> str:
    """A JSON schema or a regular expression as a part of a rule."""
    if wanted.kind == "json_schema":
        return f"%json {wanted.source}"
    return f"/{ESCAPED_OR_LOOSE.sub(_in_lark, wanted.source) or EMPTY}/"


def _in_lark(found: re.Match[str]) -> str:
    """A slash or a line feed of a regular expression, escaped once; another escape as it is."""
    text = found[0]
    return LOOSE.get(text.removeprefix("\\"), text)
