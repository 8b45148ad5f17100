"""JSON from strangers: its values are counted before any is made, and what is not plain JSON is refused by name."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.server.http.errors import ApiError
from samebits.server.limits import MAX_DEPTH, MAX_NUMBER_CHARS, MAX_VALUES

PART_BYTES = 1 << 16  # stays in a core's cache
QUOTE, BACKSLASH, COMMA, COLON, CURLY_OPEN, CURLY_CLOSE = b'"\\,:{}'
CURLY_BIT = 0x20  # the bit that { has and [ does not, and likewise for } and ]
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


@dataclass
class Scan:
    """Where a scan of JSON stands between two parts of it."""

    num_values: int = 0
    depth: int = 0
    is_inside: bool = False  # a string
    is_escaped: bool = False  # the next character


def check_size(data: bytes | bytearray) -> None:
    """ApiError for JSON of too many values and names or with too much nesting. Nothing is made of it."""
    num_opens = data.count(b"[") + data.count(b"{")  # in texts too: a bound that is quick to find
    if num_opens <= MAX_DEPTH and data.count(b",") + data.count(b":") + CONTAINER_VALUES * num_opens <= MAX_VALUES:
        return
    state, numbers = Scan(), np.frombuffer(data, np.uint8)
    for start in range(0, len(numbers), PART_BYTES):
        deepest = scan_part(numbers[start : start + PART_BYTES], state)
        if state.num_values > MAX_VALUES:
            raise invalid_json(f"more than {MAX_VALUES} values and names", "fewer")
        if deepest > MAX_DEPTH:
            raise invalid_json(f"more than {MAX_DEPTH} levels of nesting", "fewer")


def scan_part(part: np.ndarray, state: Scan) -> int:
    """Counts uint8 [n] into `state`; returns the deepest level in it."""
    is_quote, is_backslash = part == QUOTE, part == BACKSLASH
    if state.is_escaped or is_backslash.any():
        at = np.arange(len(part), dtype=np.int32)
        before = np.int32(-2 if state.is_escaped else -1)
        last_other = np.maximum.accumulate(
            np.where(is_backslash, before, at)
        )  # place of the last character that is none
        is_odd = ((at - last_other) & 1).astype(bool)  # an odd run of backslashes ends here
        is_quote &= ~np.concatenate(([state.is_escaped], is_odd[:-1]))
        state.is_escaped = bool(is_odd[-1])
    is_outside = ((np.cumsum(is_quote, dtype=np.uint8) & 1) == 0) ^ state.is_inside
    state.is_inside = not is_outside[-1]
    either = part | CURLY_BIT
    opens, closes = (either == CURLY_OPEN) & is_outside, (either == CURLY_CLOSE) & is_outside
    levels = state.depth + np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    state.depth = int(levels[-1])
    marks = ((part == COMMA) | (part == COLON)) & is_outside
    state.num_values += int(np.count_nonzero(marks)) + CONTAINER_VALUES * int(np.count_nonzero(opens))
    return int(levels.max())


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
