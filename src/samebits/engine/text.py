"""From tokens to text that may be shown: whole characters, nothing that may still become a stop string."""

from __future__ import annotations

from dataclasses import astuple

from samebits.engine.sampling import SamplingParams
from samebits.loaders import Tokenizer
from samebits.loaders.tokenizer import MessageMarks

TO = "to="  # before a message's recipient


class _Stop:
    """How much of one stop string a text ends with (Knuth, Morris and Pratt), in one step per character.

    Its table of borders grows with the longest match so far: a long string that never begins costs nothing.
    """

    def __init__(self, text: str) -> None:
        self.text, self.num_matched = text, 0
        self._borders = [0]  # of text[: i + 1]: the longest proper prefix of it that is also its suffix

    def push(self, text: str) -> int | None:
        """Where in `text` the string is first complete: the index after its last character. None where it is not."""
        if not self.num_matched and self.text[0] not in text:
            return None
        for end, character in enumerate(text, 1):
            self.num_matched = self._advance(self.num_matched, character)
            if self.num_matched == len(self.text):
                return end
            if self.num_matched > len(self._borders):
                self._borders.append(self._advance(self._borders[-1], character))
        return None

    def _advance(self, count: int, character: str) -> int:
        """The prefix matched after one more character, where `count` < len(text) characters were before."""
        while count and self.text[count] != character:
            count = self._borders[count - 1]
        return count + (self.text[count] == character)


class StopText:
    """Cuts text at the stop string that is complete first, the longest of several; holds back what may become one.

    What it shows does not depend on where the pieces of the text end. With `keeps_stop` the string itself is shown.
    """

    def __init__(self, stops: tuple[str, ...], keeps_stop: bool = False) -> None:
        self._stops, self._held, self._keeps_stop = [_Stop(text) for text in stops], "", keeps_stop
        self.met: str | None = None  # the string that was met

    def push(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string was met); nothing may follow one that was."""
        found = [(end, -len(stop.text)) for stop in self._stops if (end := stop.push(text)) is not None]
        shown, self._held = self._held + text, ""
        if found:
            end, length = min(found)
            self.met = shown[len(shown) - len(text) + end + length : len(shown) - len(text) + end]
            return shown[: len(shown) - len(text) + end + (0 if self._keeps_stop else length)], True
        if keep := max((stop.num_matched for stop in self._stops), default=0):
            shown, self._held = shown[:-keep], shown[-keep:]
        return shown, False

    def finish(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held


class AnswerText:
    """The text of one answer as its tokens come.

    A model that answers in several messages, each in a channel, names the channel ahead of a message: that name and the
    role before it are no text of the answer.

    channel    of the text that was given last; None where the model has no channels, or has not named one
    recipient  of that text, such as "functions.f", where its message names one
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._stream, self._params = tokenizer.stream(params.skip_special, params.shown_ids), params
        self._stops = StopText(params.stops, params.include_stop)
        self._marks, self._controls = tokenizer.special.marks, tokenizer.control_ids
        self._entered: str | None = None  # the channel of what comes next
        self._addressed: str | None = None  # whom that is for
        self._role = ""  # what stood before the channel's name
        self._name: str | None = None  # of a channel, as far as it has come; None within a message
        self.channel: str | None = None
        self.recipient: str | None = None

    def push(self, token: int, may_stop: bool = True) -> tuple[str, bool]:
        """(text that became safe to show, whether a stop string was met), which begins where one may stop."""
        self.channel, self.recipient = self._entered, self._addressed
        if self._marks and token in astuple(self._marks):
            return self._pass(self._marks, token)
        text = self._stream.push(token)
        if self._name is not None:
            self._name += " " if token in self._controls else text  # a control token parts words
            return "", False
        return self._stops.push(text) if may_stop else (text, False)

    def breaks(self, token: int) -> bool:
        """Return whether bytes are held back that this token does not continue: they become U+FFFD ahead of it."""
        return self._stream.breaks(token)

    def _pass(self, marks: MessageMarks, mark: int) -> tuple[str, bool]:
        """A mark: what was held back of the message before it is all there is of that."""
        rest, text, is_stopped = self._stream.finish(), "", False
        if self._name is None:
            text, is_stopped = self._stops.push(rest)
            if not is_stopped:
                text += self._stops.finish()
                self._stops = StopText(self._params.stops, self._params.include_stop)
        if mark == marks.message:
            words = (self._name or "").split()
            self._entered = next(iter(words), None)
            self._addressed = next((w[len(TO) :] for w in (*words, *self._role.split()) if w.startswith(TO)), None)
            self._name, self._role = None, ""
        elif mark != marks.end:
            self._role = self._name or "" if mark == marks.channel else ""
            self._name = ""
        return text, is_stopped

    @property
    def met(self) -> str | None:
        """The stop string that was met, if one was."""
        return self._stops.met

    def finish(self) -> str:
        """What was held back."""
        self.channel, self.recipient = self._entered, self._addressed
        rest = self._stream.finish()
        return "" if self._name is not None else self._stops.push(rest)[0] + self._stops.finish()
