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


def invalid_json(given: str, needed: str = "a JSON object") -> ApiError:
    return ApiError(400, f"body: got {given}; needs {needed}", code="invalid_json")


def parse_object(data: bytes | bytearray) -> dict[str, Any]:
    """The object that a body holds; ApiError in one line for any other body.

    Never holds the interpreter for long, so that it may run while an event loop does.
    """
    check_size(data)
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
        raise invalid_json("deep nesting", f"at most {MAX_DEPTH} levels") from None
    if not isinstance(content, dict):
        raise invalid_json("JSON that is not an object")
    if HALF_OF_A_PAIR.search(text):
        _check_pairs(content)
    return content


def check_size(data: bytes | bytearray) -> None:
    """ApiError for JSON of too many values and names or with too much nesting. Nothing is made of it."""
    num_opens = data.count(b"[") + data.count(b"{")  # in texts too: a bound that is quick to find
    if num_opens <= MAX_DEPTH and data.count(b",") + data.count(b":") + CONTAINER_VALUES * num_opens <= MAX_VALUES:
        return
    state, numbers = Scan(), np.frombuffer(data, np.uint8)
    for start in range(0, len(numbers), PART_BYTES):
        deepest = scan_part(numbers[start : start + PART_BYTES], state)
        if state.num_marks + CONTAINER_VALUES * state.num_containers > MAX_VALUES:
            raise invalid_json(f"more than {MAX_VALUES} values and names", "fewer")
        if deepest > MAX_DEPTH:
            raise invalid_json(f"more than {MAX_DEPTH} levels of nesting", "fewer")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        double = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise invalid_json(f"the name {double[:40]!r} twice in an object", "each name once")
    return made


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARS:
        raise invalid_json(f"a number of {len(text)} characters", f"at most {MAX_NUMBER_CHARS}")
    return int(text)


def _float(text: str) -> float:
    if len(text) > MAX_NUMBER_CHARS:
        raise invalid_json(f"a number of {len(text)} characters", f"at most {MAX_NUMBER_CHARS}")
    value = float(text)
    if math.isinf(value):
        raise invalid_json(f"the number {text}", "one that a double can hold")
    return value


def _refuse_constant(text: str) -> None:
    raise invalid_json(text, "a number that JSON has")


def _check_pairs(content: object) -> None:
    """ApiError for text with half of a surrogate pair, which has no UTF-8 form."""
    try:
        for part in json.JSONEncoder(ensure_ascii=False).iterencode(content):
            part.encode("utf-8")
    except UnicodeEncodeError:
        raise invalid_json("a lone surrogate in a text", "text that has a UTF-8 form") from None
