"""`samebits verify --perf`: the same cases, timed. Bytes and operations per second; ratios are what to trust.

`samebits bench` is the place for rooflines and peers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from rich.console import Console
from rich.table import Table

from samebits.backends.interface import Backend
from samebits.backends.one_op import OneOp, cache_kinds, weight_kinds
from samebits.backends.timing import time_runs
from samebits.core.errors import Unsupported
from samebits.core.format import spec_bytes
from samebits.core.tiers import Tier
from samebits.ops import OPS, Bound, bind, make_inputs
from samebits.verify.model import Task
from samebits.verify.select import case_of


@dataclass(frozen=True)
class Timing:
    """Median of several runs of one case."""

    op: str
    case: str
    tier: str
    microseconds: float
    spread: float  # (slowest - fastest) / median
    num_bytes: int
    num_operations: int
    runs: int

    @property
    def gigabytes_per_second(self) -> float:
        return self.num_bytes / self.microseconds / 1e3

    @property
    def gigaops_per_second(self) -> float:
        return self.num_operations / self.microseconds / 1e3

    def as_json(self) -> dict[str, Any]:
        rates = {"gigabytes_per_second": self.gigabytes_per_second, "gigaops_per_second": self.gigaops_per_second}
        return {**asdict(self), **rates}


def _arguments(bound: Bound) -> dict[str, Any]:
    return {**dict.fromkeys(t.name for t in bound.op.inputs), **bound.tensors, **bound.attrs}


def moved_bytes(bound: Bound) -> int:
    """Every input and output once; of a paged cache and of experts only what the call touches."""
    op = bound.op
    counted = {count: names for count, names in ((op.cache_bytes, op.caches), (op.weight_bytes, op.weights)) if count}
    in_part = {name for names in counted.values() for name in names}
    moved = sum(spec_bytes(spec) for name, spec in bound.specs.items() if name not in in_part)
    results = zip(bound.result_specs(), bound.op.active_results(bound.tensors, bound.attrs), strict=True)
    moved += sum(spec_bytes(spec) for spec, result in results if result.alias_of is None)
    return moved + sum(count(**_arguments(bound)) for count in counted)


def operations(bound: Bound) -> int:
    """What the op's record counts, or one operation per element of the results."""
    if bound.op.operations is not None:
        return bound.op.operations(**_arguments(bound))
    return sum(spec.num_elements for spec in bound.result_specs())


def time_case(backend: Backend, task: Task, tier: Tier) -> Timing | None:
    """The timing of one case; None where no kernel serves it."""
    op = OPS[task.op]
    return time_call(backend, bind(op, **make_inputs(op, case_of(task), task.seed)), task.case, tier)


def time_call(backend: Backend, bound: Bound, case: str, tier: Tier) -> Timing | None:
    """The timing of a call, under the case's name, weights and caches as a model's; None where no kernel serves it."""
    kinds = weight_kinds(bound.op) | cache_kinds(bound.op)
    try:
        call = OneOp(backend, bound.op, bound.specs, bound.attrs, tier, kinds)
        call.put(bound.tensors)
    except Unsupported:
        return None
    times = time_runs(backend, [call.executable.run])
    counts = moved_bytes(bound), operations(bound), len(times.samples)
    return Timing(bound.op.name, case, tier.label, times.median * 1e6, times.spread, *counts)


def print_timings(console: Console, timings: list[Timing]) -> None:
    table = Table(title="medians; compare ratios within one run")
    for column in ("op", "case", "tier", "time µs", "spread", "GB/s", "Gop/s"):
        table.add_column(column, justify="left" if column in ("op", "case", "tier") else "right")
    for t in timings:
        rates = (f"{t.gigabytes_per_second:.3g}", f"{t.gigaops_per_second:.3g}")
        table.add_row(t.op, t.case, t.tier, f"{t.microseconds:.1f}", f"{t.spread:.0%}", *rates)
    console.print(table)


def perf_page(timings: list[Timing], title: str) -> str:
    """A bar per case on a logarithmic scale of GB/s, as one self-contained page."""
    row_height, left, width = 18, 380, 620
    rates = [max(t.gigabytes_per_second, 1e-6) for t in timings]
    low = math.floor(math.log10(min(rates, default=1)))
    high = max(math.ceil(math.log10(max(rates, default=1))), low + 1)
    marks = []
    for decade in range(low, high + 1):
        x = left + width * (decade - low) / (high - low)
        marks.append(f'<line x1="{x}" x2="{x}" y1="20" y2="{30 + row_height * len(timings)}" stroke="#d0d7de"/>')
        marks.append(f'<text x="{x}" y="14" text-anchor="middle">{10.0**decade:g}</text>')
    for i, (t, rate) in enumerate(zip(timings, rates, strict=True)):
        y = 24 + i * row_height
        length = width * (math.log10(rate) - low) / (high - low)
        marks.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(f"{t.op}/{t.case} {t.tier}")}</text>'
        )
        marks.append(f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{row_height - 5}" fill="#0969da"/>')
        marks.append(f'<text x="{left + length + 5:.1f}" y="{y + 12}">{rate:.3g} GB/s, {t.microseconds:.0f} µs</text>')
    size = f'width="{left + width + 160}" height="{40 + row_height * len(timings)}"'
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><h1>{escape(title)}</h1>'
        f'<svg {size} font-family="system-ui, sans-serif" font-size="11">{"".join(marks)}</svg></html>\n'
    )
