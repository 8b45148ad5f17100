"""`samebits bench ops` where the backend has a clock of its own."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track

from samebits.backends.discovery import Found
from samebits.backends.interface import Stopwatch
from samebits.bench.gpu_cases import attention_cases, gpu_cases
from samebits.bench.gpu_ops import time_gpu_case
from samebits.bench.gpu_report import gpu_ops_page, print_gpu_ops
from samebits.bench.measured_rows import numbers
from samebits.bench.peers.gpu_libraries import peers_of
from samebits.core.errors import BadInput, Unavailable
from samebits.core.tiers import Tier
from samebits.verify.provenance import environment

BATCHES, CONTEXTS = (1, 16, 64), (512, 4096)  # where only one of both is given


def attention_sizes(batch: str, context: str) -> list[tuple[int, int]]:
    """(sequences, tokens of each) of the numbers in two texts: every number of one with every number of the other.

    None where both are empty; BadInput for what are no numbers.
    """
    batches, contexts = numbers("--batch", batch, 1), numbers("--context", context, 1)
    if not batches and not contexts:
        return []
    return list(product(batches or BATCHES, contexts or CONTEXTS))


def bench_gpu_ops(
    console: Console,
    found: Found,
    stopwatch: Stopwatch,
    tier: Tier,
    only: str | None,
    sizes: Collection[tuple[int, int]] = (),
) -> tuple[dict[str, Any], str]:
    """Times the cases whose label holds `only` and prints a table; the figures, and a page to look at.

    sizes   (sequences, tokens of each): where given, attention is timed at these, and nothing else is
    """
    if found.backend is None:
        raise Unavailable(found.reason)
    cache_bytes = stopwatch.cache_bytes
    cases = list(attention_cases(cache_bytes, sizes, sizes, sizes) if sizes else gpu_cases(cache_bytes))
    kept = [case for case in cases if only is None or only in case.label]
    if not kept:
        raise BadInput("bench ops", "--only", repr(only), f"a part of a label such as {cases[0].label!r}")
    ceilings = stopwatch.ceilings()
    timings = []
    for case in track(kept, "timing", console=console, transient=True, disable=not console.is_terminal):
        timing = time_gpu_case(found.backend, stopwatch, case, tier, ceilings, peers_of)
        if timing is None:
            console.print(f"[yellow]unsupported[/] {case.label} at {tier.label}", highlight=False)
        else:
            timings.append(timing)
            for failure in timing.peer_failures:
                console.print(f"[yellow]peer failed[/] {case.label}: {escape(failure)}", highlight=False)
    print_gpu_ops(console, timings, ceilings)
    figures = {"environment": environment(found), "ceilings": ceilings, "timings": [t.as_json() for t in timings]}
    return figures, gpu_ops_page(timings, f"samebits bench ops: {found.name}, {tier.label}")
