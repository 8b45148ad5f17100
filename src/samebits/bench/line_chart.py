"""Lines as an SVG: no script, no font, no address."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from samebits.bench.plot import COLOURS

LEFT, TOP, WIDTH, HEIGHT, BELOW = 90, 12, 880, 260, 40

Points = list[tuple[float, float]]
Ticks = list[tuple[float, str]]  # where on an axis, and what stands there


def lines_chart(
    names: Sequence[str], lines: Sequence[Points], across: Ticks, up: Ticks, *, is_log: bool = True, top: int = TOP
) -> str:
    """Lines from the first tick of each axis to the last, the upright one on a logarithmic or a linear scale.

    top   where the chart begins, for one of several in a picture
    """

    def height(value: float) -> float:
        return math.log10(max(value, up[0][0])) if is_log else value

    low, high, start, end = height(up[0][0]), height(up[-1][0]), across[0][0], across[-1][0]

    def right(x: float) -> float:
        return LEFT + WIDTH * (x - start) / ((end - start) or 1)

    def down(value: float) -> float:
        return top + HEIGHT * (high - height(value)) / ((high - low) or 1)

    marks = [
        f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{down(value):.1f}" y2="{down(value):.1f}" stroke="#d0d7de"/>'
        f'<text x="{LEFT - 6}" y="{down(value) + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for value, text in up
    ]
    marks += [
        f'<text x="{right(x):.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{escape(text)}</text>'
        for x, text in across
    ]
    for i, (name, line) in enumerate(zip(names, lines, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f"{right(x):.1f},{down(value):.1f}" for x, value in line)
        marks.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            f'<text x="{LEFT + 110 * i}" y="{top + HEIGHT + 34}" fill="{colour}">{escape(name)}</text>'
        )
    return svg("".join(marks), top + HEIGHT + BELOW)


def svg(content: str, height: int, *, is_file: bool = False) -> str:
    """A picture as wide as a chart; within a page it needs no namespace, in a file of its own it does."""
    space = 'xmlns="http://www.w3.org/2000/svg" ' if is_file else ""
    size = f'width="{LEFT + WIDTH + 40}" height="{height}"'
    font = 'font-family="system-ui, sans-serif" font-size="11"'
    return f"<svg {space}{size} {font}>{content}</svg>"
