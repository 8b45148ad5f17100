"""Every error a user can cause. Each message is one line that says what is wrong and what the limit is."""

from __future__ import annotations

import re

MOST_LISTED, NEAREST = 64, 8  # names that a message lists; of more it lists the nearest few


ABSENT = ("nothing", "none", "null")
# Calls and commands whose user knows what was called. Files, ops and backends stay before the argument.
KNOWN_CALLS = frozenset(
    """LLM AsyncLLM generate chat run stream score embed encode sampling request model serve build_app speculate
    numerics bench verify shader completions replay warm pull""".split()  # noqa: SIM905 (a list would fill twenty lines)
)
_CONTENTS = re.compile(  # a given that describes what the argument holds, and not the argument itself
    r"(\d[\d,]* (?!of |at |for )[a-z]|(shape|magnitude|heads|rows|ids|pages?|slot|strides|others?|another|NaN)\b|"
    r"(token|first|last|queries|entries|ranges|duplicate)\b|(an?|the) (entry|index|row|score|value|width|magnitude)\b|"
    r"(a|the) ((block |tensor )?scale|byte|character|lone|rotary|names|token)\b)"
)
_UNSUPPORTED = re.compile(r"(nothing|none|no such \w+)(: (?P<reason>.*))?$")
_SENTENCE = re.compile(r"[A-Z][a-z]+ [a-z]")  # the reason of the system or of a library
_BESIDE = re.compile(r"--|.* as well$|\S+ to be ")  # needed beside the argument, and not in its place


class SamebitsError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class BadInput(SamebitsError, ValueError):
    """An argument is wrong. Raised before anything is written.

    `where` is the call, the command, the file or the op; `given` and `needed` are noun phrases or values.
    """

    def __init__(self, where: str, argument: str, given: object, needed: str) -> None:
        self.where, self.argument, self.given, self.needed = where, argument, str(given), str(needed)
        prefix = "" if where in KNOWN_CALLS or argument.startswith("-") else f"{where}: "
        super().__init__(prefix + self.sentence(argument))

    def sentence(self, name: str) -> str:
        """Return the message about the argument under `name`, without the call or the file."""
        return refusal(name, self.given, self.needed)


def refusal(argument: str, given: str, needed: str) -> str:
    """Return the sentence that names the argument, says what it is, and states what it must be."""
    is_contents = _CONTENTS.match(given) is not None
    if found := _UNSUPPORTED.match(needed):
        reason = f": {found['reason']}" if found["reason"] else ""
        return f"{argument} {'has' if is_contents else 'is'} {given}, which is not supported{reason}"
    if given == "both" and " and " in argument:
        return f"{argument} are both given: give {needed}"
    needed = re.sub(r"(\S+) \.\. (\S+)|^(-?\d+) to (\d+)", r"from \1\3 to \2\4", needed)
    verb = "needs" if _BESIDE.match(needed) else f"must {'have' if is_contents else 'be'}"
    if given in ABSENT:
        return f"{argument} is missing" if needed == "a value" else f"{argument} is missing: it {verb} {needed}"
    if _SENTENCE.match(given):
        return f"{argument}: {given}; it {verb} {needed}"
    return f"{argument} {'has' if is_contents else 'is'} {given}, but {verb} {needed}"


def as_given(text: str) -> str:
    """Return a user's text for a message, in quotes if a refusal would read it as words of its own, such as "none"."""
    is_ours = text in (*ABSENT, "both") or _CONTENTS.match(text) or _SENTENCE.match(text)
    return repr(text) if is_ours else text


class NotFound(BadInput):
    """A file or a model that does not exist. The message is a sentence of its own."""

    def __init__(self, where: str, argument: str, message: str) -> None:
        SamebitsError.__init__(self, message)
        self.where, self.argument, self.given, self.needed = where, argument, "nothing", ""
        self._message = message

    def sentence(self, name: str) -> str:
        """Return the message, which names no argument."""
        return self._message


class UnknownName(SamebitsError, KeyError):
    """A name that no registry entry carries."""

    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        listed = f"known: {', '.join(sorted(known))}"
        if len(known) > MOST_LISTED:
            from difflib import get_close_matches  # no program needs it to start

            nearest = get_close_matches(name, known, NEAREST, cutoff=0.0)
            listed = f"of {len(known)} known ones the nearest are {', '.join(nearest)}"
        super().__init__(f"unknown {kind} {name!r}; {listed}")

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class Unsupported(SamebitsError):
    """No kernel of the backend honours the request; the text carries every refusal."""


class Unavailable(SamebitsError):
    """A backend cannot run here; the text is the reason."""


class OutOfMemory(SamebitsError):
    """The device has no room for what was asked; the text says what that was and what was free."""
