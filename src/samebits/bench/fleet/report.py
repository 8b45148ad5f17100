"""Routing policies by number of replicas: as a table for people, as figures for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from samebits.bench.fleet.play import FleetOutcome
from samebits.bench.report import number


@dataclass(frozen=True)
class Column:
    """A figure: what it is called in a table, if it is there, and in JSON, and where it comes from."""

    label: str
    key: str
    of: Callable[[FleetOutcome], float]


WAITS = (
    Column("new tokens/s", "tokens_per_second", lambda o: o.tokens_per_second),
    Column("hits, %", "hit_percent", lambda o: 100 * o.hit_rate),
    Column("first, ms", "first_token_p50_ms", lambda o: o.first_token_ms(0.5)),
    Column("99th", "first_token_p99_ms", lambda o: o.first_token_ms(0.99)),
    Column("busy, %", "busy_percent", lambda o: 100 * o.busy_share),
    Column("busiest", "busiest", lambda o: o.busiest),
)
WORK = (
    Column("requests", "num_requests", lambda o: o.num_requests),
    Column("entries", "router_peak_entries", lambda o: o.peak_entries),
    Column("probes/s", "router_probes_per_second", lambda o: o.num_probes / o.seconds),
    Column("events/s", "router_events_per_second", lambda o: o.num_events / o.seconds),
)
OTHERS = (
    Column("", "num_groups", lambda o: o.num_groups),
    Column("", "seconds", lambda o: o.seconds),
    Column("", "latency_p99_ms", lambda o: o.latency_ms(0.99)),
    Column("", "num_preemptions", lambda o: o.num_preemptions),
)


def fleet_figures(outcome: FleetOutcome) -> dict[str, float | str]:
    found = {column.key: column.of(outcome) for column in (*WAITS, *WORK, *OTHERS)}
    return {"routing": outcome.routing, "num_replicas": outcome.num_replicas, **found}


def print_fleet(console: Console, outcomes: Sequence[FleetOutcome], title: str, notes: Sequence[str]) -> None:
    """What users get, then what a router that looks at pages has to do for it."""
    console.print(_table(title, outcomes, WAITS))
    if looking := [outcome for outcome in outcomes if outcome.num_lookups]:
        console.print(
            _table("what the router does: pages it knows, pages it looks up, changes it is told", looking, WORK)
        )
    lines = (
        "First: the wait for a first token. Busiest: requests of the replica that got most, as a multiple of the mean.",
        *notes,
    )
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _table(title: str, outcomes: Sequence[FleetOutcome], columns: Sequence[Column]) -> Table:
    table = Table(title=title)
    table.add_column("replicas", justify="right")
    table.add_column("routing", no_wrap=True)
    for column in columns:
        table.add_column(column.label, justify="right")
    for before, outcome in zip([outcomes[0], *outcomes], outcomes, strict=False):
        if outcome.num_replicas != before.num_replicas:
            table.add_section()
        cells = (number(column.of(outcome)) for column in columns)
        table.add_row(f"{outcome.num_replicas:,}", outcome.routing, *cells)
    return table
