"""Finds the calls in an answer's text; what is no call stays text."""

from __future__ import annotations

from samebits.server.tools.form import CallForm
from samebits.server.tools.reading import Broken, Found, ParsedCall, Reader, arguments_text, joined


class CallScanner:
    """Takes text in any cut and gives text and calls in order.

    A call is given when it is whole, names one of `names`, and its arguments are an object; everything else is text.
    Blanks before a call, and separators after it, are no text. The work per character is bounded: what a broken call
    took is not looked at again.
    """

    def __init__(self, form: CallForm, names: frozenset[str]) -> None:
        self._form, self._names = form, names
        self._blanks: list[str] = []  # which are no text if a call follows
        self._opener = ""  # of what may become a call, as far as it has come
        self._read: list[str] = []  # what the reader took after that
        self._reader: Reader[list[ParsedCall]] | None = None
        self._is_first, self._is_after_call = True, False
        self._found: list[Found] = []

    def push(self, text: str) -> list[Found]:
        """What this text brought; texts next to each other are joined."""
        for character in text:
            self._step(character)
        return self._taken()

    def finish(self) -> list[Found]:
        """The end of the answer: what was held back."""
        if self._reader is not None:
            self._advance("")
        self._give(self._unread())
        return self._taken()

    def _step(self, character: str) -> None:
        if self._reader is not None:
            self._read.append(character)
            self._advance(character)
            return
        if self._is_after_call and not self._blanks and not self._opener and character in self._form.separators:
            return
        if not self._opener and character.isspace():
            self._blanks.append(character)
            return
        self._opener += character
        self._match_opener()

    def _match_opener(self) -> None:
        """Starts a reader at an opener; gives what cannot become one."""
        openers = self._form.openers + (self._form.first_openers if self._is_first else ())
        if self._opener in openers:
            self._reader = self._form.read(self._opener)
            next(self._reader)
        elif not any(opener.startswith(self._opener) for opener in openers):
            text = self._unread()
            num_given = len(text) - len(text.lstrip()) + 1
            self._is_first = self._is_after_call = False
            self._give(text[:num_given])
            for character in text[num_given:]:
                self._step(character)

    def _advance(self, character: str) -> None:
        """Sends the reader a character that is noted already, or the end."""
        if self._reader is None:
            return
        try:
            self._reader.send(character)
            return
        except StopIteration as done:
            calls: list[ParsedCall] = done.value
        except Broken:
            calls = []
        if calls and all(self.takes(call) for call in calls):
            self._unread()
            self._found += calls
            self._is_first = self._is_after_call = True
            return
        text = self._unread()
        self._is_first = self._is_after_call = False
        if not character:
            self._give(text)
            return
        self._give(text[:-1])
        self._step(character)  # it may begin the next call

    def takes(self, call: ParsedCall) -> bool:
        """Whether a call names one of the functions, with arguments that are a JSON object."""
        try:
            arguments_text(call)
        except Broken:
            return False
        return call.name in self._names and isinstance(call.arguments, dict)

    def _unread(self) -> str:
        """Takes back all that is held."""
        text = "".join((*self._blanks, self._opener, *self._read))
        self._blanks, self._opener, self._read, self._reader = [], "", [], None
        return text

    def _give(self, text: str) -> None:
        if text:
            self._found.append(text)

    def _taken(self) -> list[Found]:
        found, self._found = self._found, []
        return joined(found)
