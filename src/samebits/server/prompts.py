"""Prompts and texts of a body as token ids, never more than the context holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samebits.loaders.tokenizer import TextTooLong
from samebits.server.errors import bad_request
from samebits.server.model import ServedModel


def text_size(given: Any) -> int:
    """Characters to encode."""
    items = given if isinstance(given, list) else [given]
    return sum(len(item) for item in items if isinstance(item, str))


def token_lists(served: ServedModel, given: Any, param: str) -> list[list[int]]:
    """The prompts of a call as token ids; ApiError for none or too many."""
    items = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
    if not given or len(items) > served.limits.max_prompts:
        raise bad_request(param, f"{len(items) if given else 0} texts", f"1 to {served.limits.max_prompts}")
    encode = served.llm.encode
    return [short_enough(param, encode, item) if isinstance(item, str) else list(item) for item in items]


def short_enough(param: str, encode: Callable[..., list[int]], *args: Any) -> list[int]:
    """The token ids that `encode` gives; ApiError for a text that the context cannot hold."""
    try:
        return encode(*args)
    except TextTooLong as error:
        raise bad_request(param, error.given, error.needed, "context_length_exceeded") from None
