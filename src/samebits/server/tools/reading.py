"""Readers of calls: they take an answer character by character, so where its pieces were cut cannot matter.

A reader is a generator. At each `yield` it is sent the next character, "" at the end of the answer; it returns the
calls that it read, or raises `Broken`, and then all that it took is text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")
Reader = Generator[None, str, Result]


class Broken(Exception):
    """What was read is no call."""


@dataclass(frozen=True)
class ParsedCall:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class CallOpened:
    """A call whose arguments follow in parts."""

    name: str


@dataclass(frozen=True)
class ArgumentsPart:
    """Text of the last call's arguments, which are JSON when all parts have come."""

    text: str


Found = str | ParsedCall | CallOpened | ArgumentsPart  # in an answer's text, where a str is the text that remains


def joined(found: Iterable[Found]) -> list[Found]:
    """Return what was found with neighbouring texts joined, and neighbouring parts of arguments too."""
    whole: list[Found] = []
    for kind, group in groupby(found, type):
        if kind is str:
            whole.append("".join(text for text in group if isinstance(text, str)))
        elif kind is ArgumentsPart:
            whole.append(ArgumentsPart("".join(part.text for part in group if isinstance(part, ArgumentsPart))))
        else:
            whole += group
    return whole


def after_blanks() -> Reader[str]:
    """The next character that is no blank; "" at the end."""
    character = yield
    while character.isspace():
        character = yield
    return character


def expect(text: str, first: str) -> Reader[None]:
    """Takes exactly `text`, whose first character has been read already."""
    if first != text[0]:
        raise Broken
    for wanted in text[1:]:
        if (yield) != wanted:
            raise Broken


def until(end: str) -> Reader[str]:
    """The text before `end`, which is taken too."""
    taken: list[str] = []
    while True:
        character = yield
        if not character:
            raise Broken
        taken.append(character)
        if character == end[-1] and "".join(taken[-len(end) :]) == end:
            return "".join(taken[: -len(end)])


def json_text(first: str) -> Reader[str]:
    """The text of a JSON object or list, whose first character has been read already; only its brackets are checked."""
    if first not in ("{", "["):
        raise Broken
    taken, depth, in_string, is_escaped = [first], 1, False, False
    while depth:
        character = yield
        if not character:
            raise Broken
        taken.append(character)
        if in_string:
            in_string, is_escaped = is_escaped or character != '"', character == "\\" and not is_escaped
        elif character == '"':
            in_string = True
        else:
            depth += (character in "{[") - (character in "}]")
    return "".join(taken)


def _refuse(constant: str) -> NoReturn:
    raise Broken(constant)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise Broken(number)
    return value


def parse_json(text: str) -> Any:
    """Return the value of strict JSON, but for line breaks in strings, which models write.

    Raise Broken for anything else, and for what an answer cannot say: a number beyond a double's range, and half of a
    surrogate pair.
    """
    try:
        value = json.loads(text, strict=False, parse_constant=_refuse, parse_float=_finite)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise Broken from None
    return value


def call_of(value: Any, *names_of_arguments: str) -> ParsedCall:
    """A call from an object with a name and arguments, which may be text that holds JSON; Broken for other values."""
    if not isinstance(value, dict):
        raise Broken
    arguments = next((value[key] for key in names_of_arguments if key in value), None)
    if isinstance(arguments, str):
        arguments = parse_json(arguments)
    name = value.get("name")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Broken
    return ParsedCall(name, arguments)


def arguments_text(call: ParsedCall) -> str:
    """The arguments as JSON; Broken for what JSON has not, such as infinities."""
    try:
        text = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        raise Broken from None
    return text
