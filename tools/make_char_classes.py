"""Writes src/samebits/loaders/cpp/char_classes.h: which characters are letters, marks, numbers and
spaces.

Asks the regex engine that the `tokenizers` library carries, so that our words end where the library's do.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, pre_tokenizers

TARGET = Path(__file__).parents[1] / "src/samebits/loaders/cpp/char_classes.h"
CLASSES = {"LETTERS": r"\p{L}", "MARKS": r"\p{M}", "NUMBERS": r"\p{N}", "SPACES": r"\s"}
ASSIGNED = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE1000))  # no character of a class lies elsewhere
EVERY_CHAR = "".join(chr(c) for part in ASSIGNED for c in part)


def ranges(pattern: str) -> list[tuple[int, int]]:
    """First and last code point of every stretch of characters that the pattern matches."""
    cut = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str(EVERY_CHAR)
    edges = [0, *(edge for _, (start, end) in cut for edge in (start, end)), len(EVERY_CHAR)]
    pairs = [(a, b - 1) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
    found = [(ord(EVERY_CHAR[first]), ord(EVERY_CHAR[last])) for first, last in pairs]
    return [part for low, high in found for part in around_surrogates(low, high)]


def around_surrogates(low: int, high: int) -> list[tuple[int, int]]:
    """The stretch without the code points that are no characters."""
    return [(low, 0xD7FF), (0xE000, high)] if low < 0xD800 <= high else [(low, high)]


def header() -> str:
    """The text of the header."""
    lines = ["// Written by tools/make_char_classes.py: first and last code point of every stretch."]
    lines += ["#pragma once", ""]
    lines += ["#include <cstdint>", "", "namespace samebits {", "", "struct CharRange {", "    uint32_t first, last;"]
    lines += ["};", ""]
    for name, pattern in CLASSES.items():
        cells = [f"{{{low:#x}, {high:#x}}}," for low, high in ranges(pattern)]
        lines.append(f"inline constexpr CharRange {name}[] = {{")
        lines += ["    " + " ".join(cells[i : i + 6]) for i in range(0, len(cells), 6)]
        lines += ["};", ""]
    return "\n".join([*lines, "}  // namespace samebits", ""])


if __name__ == "__main__":
    TARGET.write_text(header())
