"""Checks of a body's fields that count before they look, and stop at the first thing that is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BeforeValidator

from samebits.core.request_limits import MAX_GRAMMAR_CHARS
from samebits.server.http.errors import bad_request
from samebits.server.limits import MAX_MESSAGES, MAX_PARTS

END_OF_IDS = 1 << 31


def _check_ids(ids: Any, needed: str) -> None:
    """ValueError for anything but a list of token ids; a million of them are checked in milliseconds."""
    if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
        raise ValueError(needed)
    if ids and not (min(ids) >= 0 and max(ids) < END_OF_IDS):
        raise ValueError(f"{needed}, of ids from 0 to {END_OF_IDS - 1}")


def check_prompts(given: Any) -> Any:
    """A text, a list of texts, token ids, or a list of those; the first item tells which."""
    first = given[0] if isinstance(given, list) and given else None
    if isinstance(given, str) or given == []:
        return given
    if isinstance(first, str):
        if set(map(type, given)) != {str}:
            raise ValueError("a list of texts alone")
    elif isinstance(first, list):
        for ids in given:
            _check_ids(ids, "a list of lists of token ids")
    else:
        _check_ids(given, "a text, token ids, or a list of either")
    return given


def check_id_list(given: Any) -> Any:
    _check_ids(given, "a list of token ids")
    return given


def at_most(max_items: int) -> BeforeValidator:
    """Counts before anything in the list or object is looked at."""

    def check(given: Any) -> Any:
        if isinstance(given, (list, dict)) and len(given) > max_items:
            kind = "a list" if isinstance(given, list) else "an object"
            raise ValueError(f"{kind} of at most {max_items} items")
        return given

    return BeforeValidator(check)


@BeforeValidator
def few_parts(messages: Any) -> Any:
    """Counts a conversation before anything in it is looked at."""
    if isinstance(messages, list):
        if len(messages) > MAX_MESSAGES:
            raise ValueError(f"a list of at most {MAX_MESSAGES} messages")
        contents = [m.get("content") for m in messages if isinstance(m, dict)]
        if sum(len(c) for c in contents if isinstance(c, list)) > MAX_PARTS:
            raise ValueError(f"messages of at most {MAX_PARTS} parts in all")
    return messages


def bounded_text(parts: Iterable[str], param: str = "response_format") -> str:
    """The parts as one text; ApiError as soon as they are too long. `param` is the field that they came in."""
    taken, num_chars = [], 0
    for part in parts:
        taken.append(part)
        num_chars += len(part)
        if num_chars > MAX_GRAMMAR_CHARS:
            raise bad_request(param, f"more than {MAX_GRAMMAR_CHARS} characters", "shorter")
    return "".join(taken)
