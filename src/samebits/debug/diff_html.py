"""A comparison as one self-contained page: the verdict, the error as a plot, the tensors that differ."""

from __future__ import annotations

from html import escape

from samebits.debug.diff import Report, blamed, title, verdict
from samebits.debug.distance import TensorDiff
from samebits.debug.text import magnitude, number
from samebits.verify.html import STYLE

WIDTH, HEIGHT, LEFT, TOP = 960, 260, 60, 10
SHOWN_ROWS = 500
PLOT_STYLE = """
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: #57606a }
.grid { stroke: #e3e7eb } .worst { fill: none; stroke: #cf222e; stroke-width: 1.5 }
.same { fill: #2da44e } .close { fill: #d4a72c } .beyond { fill: #cf222e }
"""


def _x(index: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT) * (index + 0.5) / max(count, 1)


def _y(relative: float | None) -> float:
    return TOP + HEIGHT * (1 - magnitude(relative))


def _kind(t: TensorDiff, same_inputs: bool) -> str:
    """Bounds apply to results of the same inputs; a difference that was carried along is just that."""
    return "same" if t.is_same else "close" if t.is_close and same_inputs else "beyond"


def _error(t: TensorDiff) -> float | None:
    return None if t.one_sided else t.relative


def plot(report: Report) -> str:
    """An SVG: a dot for every tensor at its relative error, in order, and a line through each stage's worst."""
    tensors, count = report.tensors, len(report.tensors)
    parts = []
    for power in range(-9, 1, 3):
        y = _y(10.0**power)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    line, next_free = [], 0.0
    for group in report.by_stage():
        members = [_x(i, count) for i, t in enumerate(tensors) if t.stage == group.name]
        start = members[0]
        line.append(f"{(start + members[-1]) / 2:.1f},{_y(group.relative):.1f}")
        if start >= next_free:  # as many names as fit beside each other
            parts.append(f'<text x="{start:.1f}" y="{TOP + HEIGHT + 18}">{escape(group.name)}</text>')
            next_free = start + 70
    for i, t in enumerate(tensors):
        hint = f"{t.label} ({t.op}): relative {number(_error(t))}"
        parts.append(
            f'<circle class="{_kind(t, report.same_inputs)}" cx="{_x(i, count):.1f}" cy="{_y(_error(t)):.1f}" r="2.5">'
            f"<title>{escape(hint)}</title></circle>"
        )
    parts.append(f'<polyline class="worst" points="{" ".join(line)}"/>')
    height = TOP + HEIGHT + 30
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="relative error">{"".join(parts)}</svg>'


def _row(t: TensorDiff) -> str:
    cells = (number(t.max_abs), number(t.max_ulp), number(t.relative), t.where or "")
    shown = "".join(f"<td>{escape(c)}</td>" for c in cells)
    return f"<tr><td><code>{escape(t.label)}</code></td><td><code>{escape(t.op)}</code></td>{shown}</tr>"


def diff_page(report: Report) -> str:
    different = [t for t in report.tensors if not t.is_same]
    names = ("tensor", "op", "max abs", "ulp", "relative", "first difference")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(map(_row, different[:SHOWN_ROWS]))
    more = f"<p>and {len(different) - SHOWN_ROWS} more</p>" if len(different) > SHOWN_ROWS else ""
    table = f"<h2>Tensors that differ</h2><table><tr>{head}</tr>{rows}</table>{more}" if different else ""
    colours = "Yellow: within the op's bounds. Red: beyond them" if report.same_inputs else "Red: other bits"
    lines = "<br>".join(escape(text.strip()) for text in (*verdict(report), *blamed(report)))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>samebits diff: {escape(report.model)}</title>'
        f"<style>{STYLE}{PLOT_STYLE}</style><h1>{escape(report.model)}</h1><p>{escape(title(report))}</p>"
        f"<p>{lines}</p><h2>Relative error, tensor by tensor</h2>"
        f"<p>Green: the same bits. {colours}. Line: the worst of a stage.</p>"
        f"{plot(report)}{table}</html>\n"
    )
