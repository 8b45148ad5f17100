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
        self._blanks: list[str] = []  # held back: they are left out if a mark follows
        self._held = ""  # what follows them and may become a mark: shorter than that
        self._state = "inside" if is_open else "before"
        self._at_start = True  # of what the state takes: blanks are left out there

    @property
    def is_inside(self) -> bool:
        """Whether the next character belongs to the reasoning or its closing mark."""
        return self._state == "inside"

    def push(self, text: str) -> list[Span]:
        spans: list[Span] = []
        if self._state == "before":
            text = self._look_for_opening(text)
        if self._state == "inside":
            text = self._reasoning(text, spans)
        if self._state == "after":
            self._answer(text, spans)
        return spans

    def finish(self) -> list[Span]:
        """The end of the answer: what was held back."""
        held = self._unheld()
        return [Span(held, self._state == "inside")] if held else []

    def _unheld(self) -> str:
        """Take back all that is held."""
        held, self._blanks, self._held = "".join((*self._blanks, self._held)), [], ""
        return held

    def _look_for_opening(self, text: str) -> str:
        """Hold the text while it may be blanks and the opening mark, then return what is to be read after that."""
        opening = self._marks.opening
        if not self._held:
            begun = text.lstrip()
            self._blanks.append(text[: len(text) - len(begun)])
            text = begun
        self._held += text
        if self._held.startswith(opening):
            self._state = "inside"
            return self._unheld().lstrip()[len(opening) :]
        if opening.startswith(self._held):
            return ""
        self._state, self._at_start = "after", False  # no reasoning: its blanks are the answer's
        return self._unheld()

    def _reasoning(self, text: str, spans: list[Span]) -> str:
        """Add the reasoning in a text, and return what follows its closing mark."""
        if self._at_start:
            text = text.lstrip()
            self._at_start = not text
        text, closing, rest = (self._held + text).partition(self._marks.closing)
        num_held = 0 if closing else self._num_begun(text)
        self._held = text[len(text) - num_held :]
        body = text[: len(text) - num_held]
        shown = body.rstrip()
        if shown:
            spans.append(Span("".join((*self._blanks, shown)), True))
            self._blanks = []
        if closing:
            self._blanks, self._state, self._at_start = [], "after", True
        else:
            self._blanks.append(body[len(shown) :])
        return rest

    def _num_begun(self, text: str) -> int:
        """Return how many characters at the end of a text may begin the closing mark."""
        closing = self._marks.closing
        longest = min(len(text), len(closing) - 1)
        return next((n for n in range(longest, 0, -1) if text.endswith(closing[:n])), 0)

    def _answer(self, text: str, spans: list[Span]) -> None:
        if self._at_start:
            text = text.lstrip()
            self._at_start = not text
        if text:
            spans.append(Span(text, False))
