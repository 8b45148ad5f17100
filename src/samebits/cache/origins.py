"""A debug check of prefix matches: all tokens and the salt are compared, whatever the names say.

SAMEBITS_CHECK_MATCHES=1 turns the check on, as the tests do. Every known page then keeps its whole history.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.core.errors import BadInput

if TYPE_CHECKING:
    from samebits.cache.pages import Prefix

CHECKS_MATCHES = os.environ.get("SAMEBITS_CHECK_MATCHES") == "1"


@dataclass(frozen=True, eq=False, slots=True)
class Origin:
    """The content of one page and of all before it; the salt, where nothing is before."""

    before: Origin | None
    content: bytes


def origin_of(before: Origin | None, content: bytes) -> Origin | None:
    """Return the record that a match is checked with, or None if the check is off."""
    return Origin(before, content) if CHECKS_MATCHES else None


def check_match(held: Prefix, asked: Prefix) -> None:
    """Raise BadInput if a page that was found by its name holds another prefix. Do nothing if the check is off."""
    one, other = held.origin, asked.origin
    if one is None or other is None:
        return
    while one is not other:
        if one is None or other is None or one.content != other.content:
            raise BadInput("cache", "prefix", "a page of other tokens or another salt", "one content for one name")
        one, other = one.before, other.before
