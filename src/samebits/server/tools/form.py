"""What a form of calls states: how to read it, and how to write it in a grammar."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from samebits.server.tools.lark import Rules
from samebits.server.tools.reading import ParsedCall, Reader


class CallForm(ABC):
    """How a family of models writes its calls. Forms have no state.

    name           by which a flag of `serve` asks for it
    openers        texts that begin calls, anywhere in an answer
    first_openers  texts that do so only at the beginning of an answer or after a call
    separators     characters that may stand between calls, and are no text of the answer
    marks          texts that may be control tokens of the vocabulary: parsers need to see them
    is_parallel    whether an answer can hold several calls
    between        texts and marks that a grammar writes between calls
    """

    name: str
    openers: tuple[str, ...] = ()
    first_openers: tuple[str, ...] = ()
    separators: str = " \t\r\n"
    marks: tuple[str, ...] = ()
    is_parallel: bool = True
    between: tuple[str, ...] = ()

    @abstractmethod
    def read(self, opener: str) -> Reader[list[ParsedCall]]:
        """Reads on after an opener."""

    @abstractmethod
    def written(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        """The texts and marks before and after the arguments, a JSON object, of a call that a grammar writes.

        The first is `openers[0]` in a form whose calls may come anywhere.
        """

    def lead(self, rules: Rules) -> str:
        """What a grammar lets come before calls, beside the reasoning of models that have marks around it."""
        return ""

    def plain(self, rules: Rules) -> str:
        """What a grammar takes for an answer without calls, in a form whose calls cannot come anywhere; else ""."""
        return ""
