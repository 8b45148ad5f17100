"""JSON from strangers: its values are counted before any is made, and what is not plain JSON is refused by name."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from samebits.core.json_scan import PART_BYTES, Scan, scan_part
from samebits.server.http.errors import ApiError
from samebits.server.limits import MAX_DEPTH, MAX_NUMBER_CHARS, MAX_VALUES

CONTAINER_VALUES = 4  # what a list or an object counts for, by the time it takes to make one
HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def invalid_json(given: str, needed: str = "be a JSON object") -> ApiError:
    return ApiError(400, f"body has {given}, but must {needed}", code="invalid_json")


def parse_object(data: bytes | bytearray) -> dict[str, Any]:
    """The object that a body holds; ApiError in one line for any other body.

    Never holds the interpreter for long, so that it may run while an event loop does.
    """
    ValueBudget().take(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid_json(f"a byte that is not UTF-8 at {error.start}") from None
    try:
        content = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise invalid_json(f"invalid JSON ({error.msg.lower()} at {error.pos})") from None
    except RecursionError:
        raise invalid_json("deep nesting", f"have at most {MAX_DEPTH} levels") from None
    if not isinstance(content, dict):
        raise invalid_json("JSON that is not an object")
    if HALF_OF_A_PAIR.search(text):
        _check_pairs(content)
    return content


class ValueBudget:
    """Counts the values of JSON texts before anything is made of them: all together may hold what one body may."""

    def __init__(self) -> None:
        self._num_values = 0

    def take(self, data: bytes | bytearray) -> None:
        """Count one more text. ApiError if there are too many values and names, or too many levels of nesting."""
        num_opens = data.count(b"[") + data.count(b"{")  # in texts too: a bound that is quick to find
        bound = self._num_values + data.count(b",") + data.count(b":") + CONTAINER_VALUES * num_opens
        if num_opens <= MAX_DEPTH and bound <= MAX_VALUES:
            self._num_values = bound
            return
        state, numbers, num_before = Scan(), np.frombuffer(data, np.uint8), self._num_values
        for start in range(0, len(numbers), PART_BYTES):
            deepest = scan_part(numbers[start : start + PART_BYTES], state)
            self._num_values = num_before + state.num_marks + CONTAINER_VALUES * state.num_containers
            if self._num_values > MAX_VALUES:
                raise invalid_json(f"more than {MAX_VALUES} values and names", "have fewer")
            if deepest > MAX_DEPTH:
                raise invalid_json(f"more than {MAX_DEPTH} levels of nesting", "have fewer")


def parse_arguments(text: str, budget: ValueBudget) -> Any:
    """Return the JSON that a text in a body holds. Raise ValueError if it is none, or ApiError if `budget` is used up.

    A number that no double can hold, and half of a surrogate pair, cannot be written again as JSON: ValueError too.
    Line breaks in strings are allowed, since models write them. Never holds the interpreter for long.
    """
    budget.take(text.encode("utf-8"))
    try:
        value = json.loads(
            text,
            strict=False,
            object_pairs_hook=lambda pairs: dict(pairs),  # in Python, where other threads get their turn
            parse_int=lambda digits: int(digits),
            parse_float=_finite,
            parse_constant=_refuse_value,
        )
        if HALF_OF_A_PAIR.search(text):
            _encode_texts(value)
    except RecursionError:
        raise ValueError("deep nesting") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        double = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise invalid_json(f"the name {double[:40]!r} twice in an object", "have each name once")
    return made


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARS:
        raise invalid_json(f"a number of {len(text)} characters", f"have numbers of at most {MAX_NUMBER_CHARS}")
    return int(text)


def _float(text: str) -> float:
    if len(text) > MAX_NUMBER_CHARS:
        raise invalid_json(f"a number of {len(text)} characters", f"have numbers of at most {MAX_NUMBER_CHARS}")
    value = float(text)
    if math.isinf(value):
        raise invalid_json(f"the number {text}", "have numbers that a double can hold")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def _refuse_value(text: str) -> None:
    raise ValueError(text)


def _refuse_constant(text: str) -> None:
    raise invalid_json(text, "have numbers that JSON knows")


def _check_pairs(content: object) -> None:
    """ApiError for text with half of a surrogate pair, which has no UTF-8 form."""
    try:
        _encode_texts(content)
    except UnicodeEncodeError:
        raise invalid_json("a lone surrogate in a text", "have text that UTF-8 can encode") from None


def _encode_texts(content: object) -> None:
    """Raise UnicodeEncodeError if a text has half of a surrogate pair."""
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(content):
        part.encode("utf-8")
