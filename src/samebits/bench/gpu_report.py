"""Tables and pages of `samebits bench ops` on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from samebits.bench.gpu_ops import GpuTiming
from samebits.bench.plot import Bar, chart, page
from samebits.bench.results import Spread


def ceiling_line(ceilings: Mapping[str, float]) -> str:
    return ", ".join(f"{name.removesuffix('/s')} {rate / 1e12:.2f} T/s" for name, rate in ceilings.items())


def print_gpu_ops(console: Console, timings: list[GpuTiming], ceilings: Mapping[str, float]) -> None:
    table = Table(title=f"medians, captured graphs; ceilings here: {ceiling_line(ceilings)}")
    for column in ("op", "case", "time µs", "TB/s", "Top/s", "of ceiling", "peer", "peer µs", "peer's time / ours"):
        table.add_column(column, justify="left" if column in ("op", "case", "peer") else "right")
    for t in timings:
        rates = (f"{t.bytes_per_second / 1e12:.2f}", f"{t.operations_per_second / 1e12:.1f}", f"{t.share:.0%}")
        peer = ("", "", "")
        if t.peer_seconds is not None:
            peer = (t.peer_name, f"{t.peer_seconds * 1e6:.1f}", f"{t.peer_seconds / t.seconds:.2f}")
        table.add_row(t.case.op, t.case.name, f"{t.seconds * 1e6:.1f}", *rates, *peer)
    console.print(table)


def gpu_ops_page(timings: list[GpuTiming], title: str) -> str:
    """Share of the nearer ceiling by case, then how we stand against libraries."""

    def spread(value: float) -> Spread:
        return Spread(value, value, value)

    shares = chart([Bar(t.case.label, spread(100 * t.share)) for t in timings], "%")
    ratios = [Bar(t.case.label, spread(t.peer_seconds / t.seconds)) for t in timings if t.peer_seconds is not None]
    sections = [("percent of the nearer ceiling", shares)]
    if ratios:
        sections.append(("a library's time over ours", chart(ratios, "x")))
    return page(title, [], sections)
