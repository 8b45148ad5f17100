"""Simulated policies as a page: stalls over time, how often which stall comes, and the wait for a first token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from samebits.bench.line_chart import Points, Ticks, lines_chart
from samebits.bench.outcome import Outcome
from samebits.bench.plot import Bar, chart, page
from samebits.bench.report import number
from samebits.bench.results import Spread

NUM_SPANS = 300  # of a timeline: each shows its worst stall
NUM_NINES = 4  # up to 99.99 percent: the rare stalls are those that people notice
POINTS_A_NINE = 20
SHORTEST_MS = 0.001  # the logarithm's floor


def schedule_page(outcomes: Sequence[Outcome], title: str, notes: Sequence[str]) -> str:
    """One page that needs nothing else."""
    names = [outcome.name for outcome in outcomes]
    timelines, tails = [_timeline(o) for o in outcomes], [_tail(o) for o in outcomes]
    seconds = _second_ticks(max(o.seconds for o in outcomes))
    nines: Ticks = [(n, f"{100 - 10.0 ** (2 - n):g} %") for n in range(NUM_NINES + 1)]
    stalls = [Spread(o.gap_ms(0.99), o.gap_ms(0.5), o.gap_ms(1)) for o in outcomes]
    waits = [Spread(*map(o.first_token_ms, (0.5, 0, 1))) for o in outcomes]
    return page(
        title,
        notes,
        [
            (
                "decode stalls over time: the worst that is under way",
                lines_chart(names, timelines, seconds, _ms_axis(timelines)),
            ),
            ("decode stalls: what so many of them do not exceed", lines_chart(names, tails, nines, _ms_axis(tails))),
            ("decode stalls: 99th percentile (median..worst)", chart(_bars(names, stalls), "ms")),
            ("time to first token: median (best..worst)", chart(_bars(names, waits), "ms")),
        ],
    )


def _bars(names: Sequence[str], values: Sequence[Spread]) -> list[Bar]:
    return [Bar(name, value, i) for i, (name, value) in enumerate(zip(names, values, strict=True))]


def _timeline(outcome: Outcome) -> Points:
    """Seconds since the start, and the worst stall that lasts or ends about then."""
    span = outcome.seconds / NUM_SPANS
    ends, gaps, worst = np.array(outcome.gap_ends), np.array(outcome.gaps), np.zeros(NUM_SPANS + 1)
    last = (ends / span).astype(int)
    np.maximum.at(worst, last, gaps)
    for i in np.flatnonzero(gaps > span).tolist():
        during = slice(int((ends[i] - gaps[i]) / span) + 1, last[i])
        worst[during] = np.maximum(worst[during], gaps[i])
    return [(i * span, 1000 * gap) for i, gap in enumerate(worst.tolist()) if gap]


def _second_ticks(end: float) -> Ticks:
    """Round numbers, about five, the last at the end or after it."""
    power = 10.0 ** math.floor(math.log10(end / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if 6 * power * factor >= end)
    return [(i * step, f"{i * step:g} s") for i in range(math.ceil(end / step) + 1)]


def _tail(outcome: Outcome) -> Points:
    """How many nines the share of shorter stalls has, and the stall."""
    nines = [i / POINTS_A_NINE for i in range(NUM_NINES * POINTS_A_NINE + 1)]
    return [(n, outcome.gap_ms(1 - 10.0**-n)) for n in nines]


def _ms_axis(lines: Sequence[Points]) -> Ticks:
    """Powers of ten around all values."""
    heights = [math.log10(max(ms, SHORTEST_MS)) for line in lines for _, ms in line] or [0.0]
    powers = range(math.floor(min(heights)), math.floor(max(heights)) + 2)
    return [(10.0**power, f"{number(10.0**power)} ms") for power in powers]
