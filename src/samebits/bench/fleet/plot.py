"""Routing policies against the number of replicas: throughput, hits and the wait for a first token in one picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from samebits.bench.fleet.play import FleetOutcome
from samebits.bench.line_chart import BELOW, HEIGHT, LEFT, TOP, Points, Ticks, lines_chart, svg
from samebits.bench.plot import page
from samebits.bench.report import number

HEADING = 24  # pixels above a chart
PERCENTS: Ticks = [(share / 5, f"{20 * share} %") for share in range(6)]


def fleet_svg(outcomes: Sequence[FleetOutcome], *, is_file: bool = True) -> str:
    """Three charts, one below another, replicas on a logarithmic scale."""
    counts = sorted({o.num_replicas for o in outcomes})
    names = list(dict.fromkeys(o.routing for o in outcomes))
    across: Ticks = [(math.log10(n), f"{n:,}") for n in counts]

    def lines(of: Callable[[FleetOutcome], float]) -> list[Points]:
        return [[(math.log10(o.num_replicas), of(o)) for o in outcomes if o.routing == name] for name in names]

    rates = lines(lambda o: o.tokens_per_second / o.num_replicas)
    waits = lines(lambda o: o.first_token_ms(0.99))
    charts = (
        ("new tokens per second and replica", rates, _linear(rates), False),
        ("prompt tokens found in the cache", lines(lambda o: o.hit_rate), PERCENTS, False),
        ("time to first token: 99th percentile, against replicas", waits, _powers(waits, "ms"), True),
    )
    parts, top = ['<rect width="100%" height="100%" fill="#ffffff"/>'], TOP  # pages may be dark
    for heading, found, up, is_log in charts:
        parts.append(f'<text x="{LEFT}" y="{top + 12}" font-size="14">{escape(heading)}</text>')
        parts.append(lines_chart(names, found, across, up, is_log=is_log, top=top + HEADING))
        top += HEADING + HEIGHT + BELOW
    return svg("".join(parts), top, is_file=is_file)


def fleet_page(outcomes: Sequence[FleetOutcome], title: str, notes: Sequence[str]) -> str:
    """One page that needs nothing else."""
    return page(title, notes, [("routing against replicas", fleet_svg(outcomes, is_file=False))])


def _linear(lines: Sequence[Points]) -> Ticks:
    """From 0 to a round number above all values."""
    largest = max(value for line in lines for _, value in line)
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(power * factor for factor in (0.2, 0.5, 1, 2) if 6 * power * factor > largest)
    return [(i * step, number(i * step)) for i in range(math.floor(largest / step) + 2)]


def _powers(lines: Sequence[Points], unit: str) -> Ticks:
    """Powers of ten around all values."""
    logs = [math.log10(value) for line in lines for _, value in line if value > 0] or [0.0]
    return [(10.0**n, f"{number(10.0**n)} {unit}") for n in range(math.floor(min(logs)), math.ceil(max(logs)) + 1)]
