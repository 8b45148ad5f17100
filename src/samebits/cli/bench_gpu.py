"""`samebits bench ops` where the backend has a clock of its own."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import track

from samebits.backends.discovery import Found
from samebits.backends.interface import Stopwatch
from samebits.bench.gpu_ops import gpu_cases, time_gpu_case
from samebits.bench.gpu_report import gpu_ops_page, print_gpu_ops
from samebits.bench.peers.gpu_libraries import peer_calls
from samebits.core.errors import BadInput, Unavailable
from samebits.core.tiers import Tier
from samebits.verify.report import environment


def bench_gpu_ops(
    console: Console,
    found: Found,
    stopwatch: Stopwatch,
    tier: Tier,
    only: str | None,
) -> tuple[dict[str, Any], str]:
    """Times the cases whose label holds `only` and prints a table; the figures, and a page to look at."""
    if found.backend is None:
        raise Unavailable(found.reason)
    cases = list(gpu_cases(stopwatch.cache_bytes))
    kept = [case for case in cases if only is None or only in case.label]
    if not kept:
        raise BadInput("bench ops", "--only", repr(only), f"a part of a label such as {cases[0].label!r}")
    ceilings = stopwatch.ceilings()
    timings = []
    for case in track(kept, "timing", console=console, transient=True, disable=not console.is_terminal):
        timing = time_gpu_case(found.backend, stopwatch, case, tier, ceilings, peer_calls)
        if timing is None:
            console.print(f"[yellow]unsupported[/] {case.label} at {tier.label}", highlight=False)
        else:
            timings.append(timing)
    print_gpu_ops(console, timings, ceilings)
    figures = {"environment": environment(found), "ceilings": ceilings, "timings": [t.as_json() for t in timings]}
    return figures, gpu_ops_page(timings, f"samebits bench ops: {found.name}, {tier.label}")
