"""Which part of an answer is reasoning: other channels than the final one, or what stands between <think> marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.engine.answer import Piece

OPENING, CLOSING = "<think>", "</think>"


@dataclass(frozen=True)
class Part:
    """Text of an answer; `piece` is the last piece of the engine's that it came with."""

    text: str
    is_reasoning: bool
    piece: Piece


class Thinking:
    """Splits text as it comes. An answer that begins with the opening mark is reasoning up to the closing one."""

    def __init__(self, has_begun: bool) -> None:
        """has_begun: the prompt ends with the opening mark, as some templates have it."""
        self._state = "reasoning" if has_begun else "start"  # then "gap", the empty lines after it, and "answer"
        self._held = ""

    def push(self, text: str, is_last: bool) -> list[tuple[str, bool]]:
        """(text, whether it is reasoning), as far as that can be told; all that is held where it is the last."""
        self._held += text
        found: list[tuple[str, bool]] = []
        if self._state == "start":
            start = self._held.lstrip()
            if start.startswith(OPENING):
                self._state, self._held = "reasoning", start.removeprefix(OPENING).lstrip("\n")
            elif is_last or not OPENING.startswith(start):
                self._state = "answer"
        if self._state == "reasoning":
            before, mark, after = self._held.partition(CLOSING)
            num_held = 0 if mark or is_last else _num_begun(before)
            found.append((before[: len(before) - num_held], True))
            self._state, self._held = ("gap", after) if mark else (self._state, before[len(before) - num_held :])
        if self._state == "gap":
            self._held = self._held.lstrip("\n")
            self._state = "answer" if self._held else "gap"
        if self._state == "answer":
            found.append((self._held, False))
            self._held = ""
        return [(part, is_reasoning) for part, is_reasoning in found if part]


def _num_begun(text: str) -> int:
    """How many characters of the closing mark a text ends with."""
    return next((count for count in range(len(CLOSING) - 1, 0, -1) if text.endswith(CLOSING[:count])), 0)


def parts(pieces: Iterable[Piece], has_begun: bool) -> Iterator[Part]:
    """The pieces' texts, with what they are; a piece without text that ends the answer is a part too."""
    thinking = Thinking(has_begun)
    for piece in pieces:
        is_last = piece.finish_reason is not None
        split = thinking.push(piece.text, is_last) if piece.is_answer else [(piece.text, True)]
        for text, is_reasoning in split or [("", False)]:
            yield Part(text, is_reasoning, piece)
