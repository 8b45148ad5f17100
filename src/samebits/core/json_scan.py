"""Counts what a JSON document holds before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PART_BYTES = 1 << 16  # stays in a core's cache
QUOTE, BACKSLASH, COMMA, COLON, CURLY_OPEN, CURLY_CLOSE = b'"\\,:{}'
CURLY_BIT = 0x20  # the bit that { has and [ does not, and likewise for } and ]


@dataclass
class Scan:
    """Counts so far, and the scanner's state between two parts of a document."""

    num_marks: int = 0  # commas and colons outside strings
    num_containers: int = 0  # lists and objects
    depth: int = 0
    is_inside: bool = False  # a string
    is_escaped: bool = False  # the next character


def scan_part(part: np.ndarray, state: Scan) -> int:
    """Count uint8 [n] into `state`; return the deepest level in this part."""
    is_quote, is_backslash = part == QUOTE, part == BACKSLASH
    if state.is_escaped or is_backslash.any():
        at = np.arange(len(part), dtype=np.int32)
        before = np.int32(-2 if state.is_escaped else -1)
        last_other = np.maximum.accumulate(
            np.where(is_backslash, before, at)
        )  # place of the last character that is no backslash
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
    state.num_marks += int(np.count_nonzero(marks))
    state.num_containers += int(np.count_nonzero(opens))
    return int(levels.max())
