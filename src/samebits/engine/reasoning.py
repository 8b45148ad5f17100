"""Reasoning in an answer's text: what stands between a pair of marks at its beginning."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.loaders import Tokenizer


@dataclass(frozen=True)
class ThinkMarks:
    """The texts around a model's reasoning; they may be control tokens."""

    opening: str
    closing: str


THINK_MARKS = {
    "think": ThinkMarks("<think>", "</think>"),  # DeepSeek R1, Qwen 3, and many others
    "mistral": ThinkMarks("[THINK]", "[/THINK]"),
}
NO_REASONING = "none"
TAIL_TOKENS = 8  # of a prompt, in which a template may open the reasoning


def marks_for(template: str, tokenizer: Tokenizer) -> ThinkMarks | None:
    """The marks that a model's template names or its vocabulary has as one token; None for others."""

    def is_known(text: str) -> bool:
        return text in template or len(tokenizer.encode(text, add_special=False)) == 1

    return next((m for m in THINK_MARKS.values() if is_known(m.opening) and is_known(m.closing)), None)


def opens_reasoning(prompt: list[int], tokenizer: Tokenizer, marks: ThinkMarks) -> bool:
    """Whether a prompt ends with the opening mark, as some templates have it."""
    return tokenizer.decode(prompt[-TAIL_TOKENS:]).rstrip().endswith(marks.opening)


@dataclass(frozen=True)
class Span:
    """Text, and whether it is reasoning."""

    text: str
    is_reasoning: bool


class ReasoningSplitter:
    """Takes an answer's text in any cut and gives spans of it; the marks, and blanks around them, are in none.

    Only an answer's beginning can be reasoning. One that is never closed is reasoning to its end.
    """

    def __init__(self, marks: ThinkMarks, is_open: bool) -> None:
        self._marks = marks
        self._held = ""
        self._state = "inside" if is_open else "before"
        self._at_start = True  # of what the state takes: blanks are left out there

    @property
    def is_inside(self) -> bool:
        """Whether the next character belongs to the reasoning or its closing mark."""
        return self._state == "inside"

    def push(self, text: str) -> list[Span]:
        self._held += text
        spans: list[Span] = []
        if self._state == "before":
            self._look_for_opening()
        if self._state == "inside":
            spans += self._reasoning()
        if self._state == "after":
            spans += self._answer()
        return spans

    def finish(self) -> list[Span]:
        """The end of the answer: what was held back."""
        held, self._held = self._held, ""
        return [Span(held, self._state == "inside")] if held else []

    def _look_for_opening(self) -> None:
        begun, opening = self._held.lstrip(), self._marks.opening
        if begun.startswith(opening):
            self._held, self._state = begun[len(opening) :], "inside"
        elif not opening.startswith(begun):
            self._state, self._at_start = "after", False  # no reasoning: its blanks are the answer's

    def _reasoning(self) -> list[Span]:
        if self._at_start:
            self._held = self._held.lstrip()
            self._at_start = not self._held
        text, closing, rest = self._held.partition(self._marks.closing)
        if closing:
            self._held, self._state, self._at_start = rest, "after", True
            text = text.rstrip()
        else:
            safe = self._safe_chars(text)
            text, self._held = text[:safe], text[safe:]
        return [Span(text, True)] if text else []

    def _safe_chars(self, text: str) -> int:
        """Characters that are neither blanks at the end nor a part of the closing mark."""
        closing = self._marks.closing
        longest = min(len(text), len(closing) - 1)
        part = next((n for n in range(longest, 0, -1) if text.endswith(closing[:n])), 0)
        return len(text[: len(text) - part].rstrip())

    def _answer(self) -> list[Span]:
        text, self._held = self._held, ""
        if self._at_start:
            text = text.lstrip()
            self._at_start = not text
        return [Span(text, False)] if text else []
