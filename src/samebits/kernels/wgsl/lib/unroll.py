"""Repeated lines of a shader, written out: what lies in registers has to have a name each, on every compiler.

    //: each r < ROWS
    var sum_$r = 0.0;
    //: end

ROWS is a number or a constant of the dispatch. Stretches nest; a counter has one letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

EACH = re.compile(r"\s*//: each (\w) < (\w+)\s*$")
END = re.compile(r"\s*//: end\s*$")


def unrolled(text: str, consts: Mapping[str, int | bool]) -> str:
    """The text with every stretch written out as often as its constant says."""
    return "\n".join(_unrolled(text.splitlines(), consts))


def _unrolled(lines: list[str], consts: Mapping[str, int | bool]) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(lines):
        head = EACH.match(lines[at])
        if head is None:
            found.append(lines[at])
            at += 1
            continue
        end = _end_of(lines, at)
        inner = _unrolled(lines[at + 1 : end], consts)
        for number in range(int(consts[head[2]] if head[2] in consts else head[2])):
            found += [line.replace(f"${head[1]}", str(number)) for line in inner]
        at = end + 1
    return found


def _end_of(lines: list[str], start: int) -> int:
    """The line that ends the stretch that begins at `start`."""
    depth = 0
    for at in range(start, len(lines)):
        depth += bool(EACH.match(lines[at])) - bool(END.match(lines[at]))
        if not depth:
            return at
    raise ValueError(f"no end of: {lines[start].strip()}")
