"""Bars as one self-contained page: no script, no font, no address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from samebits.bench.model_run import ModelRun
from samebits.bench.report import head_lines, peer_line, spread_text
from samebits.bench.results import Spread
from samebits.verify.html import STYLE

COLOURS = ("#0969da", "#bf8700", "#8250df", "#57606a")  # ours first
ROW_HEIGHT, LEFT, WIDTH, RIGHT = 18, 300, 460, 360


@dataclass(frozen=True)
class Bar:
    """One value with its ends; `series` numbers the colour, `note` stands behind it."""

    label: str
    value: Spread
    series: int = 0
    note: str = ""


def chart(bars: Sequence[Bar], unit: str) -> str:
    """An SVG of horizontal bars on a linear scale, whiskers from the lowest to the highest value."""
    largest = max((bar.value.high for bar in bars), default=0.0) or 1.0
    marks = []
    for i, bar in enumerate(bars):
        top, middle = i * ROW_HEIGHT, i * ROW_HEIGHT + ROW_HEIGHT / 2
        length, low, high = (WIDTH * v / largest for v in (bar.value.median, bar.value.low, bar.value.high))
        colour = COLOURS[bar.series % len(COLOURS)]
        text = f"{spread_text(bar.value)} {unit}" + (f", {bar.note}" if bar.note else "")
        marks.append(
            f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.label)}</text>'
            f'<rect x="{LEFT}" y="{top + 3}" width="{length:.1f}" height="{ROW_HEIGHT - 6}" fill="{colour}"/>'
            f'<line x1="{LEFT + low:.1f}" x2="{LEFT + high:.1f}" y1="{middle}" y2="{middle}" stroke="#1b1f24"/>'
            f'<text x="{LEFT + high + 6:.1f}" y="{middle + 4}">{escape(text)}</text>'
        )
    size = f'width="{LEFT + WIDTH + RIGHT}" height="{ROW_HEIGHT * len(bars) + 4}"'
    return f'<svg {size} font-family="system-ui, sans-serif" font-size="11">{"".join(marks)}</svg>'


def page(title: str, lines: Sequence[str], charts: Sequence[tuple[str, str]]) -> str:
    """A title, some lines, then charts under their headings."""
    body = "".join(f"<p>{escape(line)}</p>" for line in lines)
    body += "".join(f"<h2>{escape(heading)}</h2>{svg}" for heading, svg in charts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def model_page(run: ModelRun) -> str:
    """Tokens per second by row and side, then what decodes reach of the read ceiling."""
    names = [run.results[0].ours.side, *run.peer_facts]
    charts = []
    for kind in ("prefill", "decode"):
        bars = []
        for result in (r for r in run.results if r.row.kind == kind):
            for timed in (result.ours, *(p for p in result.peers if p.seconds)):
                ratio = "" if timed is result.ours else f", ours {result.ratio(timed).median:.2f}x"
                label = f"{result.row.label}: {timed.side}"
                bars.append(Bar(label, timed.rate(result.row), names.index(timed.side), f"{timed.setting}{ratio}"))
        if bars:
            charts.append((f"{kind}, tokens/s", chart(bars, "tokens/s")))
    shares = [(r, s) for r in run.results if (s := r.of_ceiling)]
    if shares:
        percent = [Bar(r.row.label, Spread(100 * s.median, 100 * s.low, 100 * s.high)) for r, s in shares]
        charts.append(("weights read, percent of the read ceiling", chart(percent, "%")))
    peers = [peer_line(name, facts) for name, facts in run.peer_facts.items()]
    return page("samebits bench model", [*head_lines(run), *peers, *run.left_out], charts)
