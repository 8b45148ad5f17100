"""Plain aligned text: it reads the same in a terminal, a pipe and a file."""

from __future__ import annotations

import math
from collections.abc import Sequence

SMALLEST = 1e-9  # below float32's last bit: an error of this size has no bar


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Rows of equally many cells as lines, every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def magnitude(relative: float | None) -> float:
    """An error's place between nothing (0, up to 1e-9) and everything (1, from 1 on), by its decimal power."""
    if relative is None or relative >= 1:
        return 1.0
    return 1 - math.log10(relative) / math.log10(SMALLEST) if relative > SMALLEST else 0.0


def bar(relative: float | None, width: int = 30) -> str:
    """An error as a bar on a logarithmic scale; any error at all gets at least one mark."""
    if relative == 0:
        return ""
    return "#" * max(1, round(width * magnitude(relative)))


def number(value: float | int | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.3g}"


def size_text(num_bytes: int) -> str:
    """1.23 GB, or 0.45 MB."""
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.2f} MB"
