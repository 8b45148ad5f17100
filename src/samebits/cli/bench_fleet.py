"""`samebits bench schedule --replicas`: routing policies against the size of a cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from samebits.bench.ceiling import usable_threads
from samebits.bench.fleet.plot import fleet_page, fleet_svg
from samebits.bench.fleet.report import fleet_figures, print_fleet
from samebits.bench.fleet.routing import MOST_AHEAD, ROUTINGS, routing_of
from samebits.bench.fleet.sweep import Play, numbers_of_replicas, outcomes_of
from samebits.bench.fleet.workload import Groups
from samebits.bench.schedule_report import setting_lines
from samebits.bench.simulate import Cost, Room, policy_of
from samebits.bench.workload import Arrival
from samebits.cli import flags
from samebits.cli.output import emit
from samebits.core.errors import BadInput
from samebits.core.files import write_atomically

REPLICAS = flags.Option(
    None,
    "--replicas",
    help="Simulate a cluster instead, of so many replicas: numbers, or 1..1000 for steps between two.",
)
ROUTING = flags.Option(
    ",".join(ROUTINGS), "--routing", help="With --replicas: the policies by which requests are sent to replicas."
)
GROUPS = flags.Option(
    Groups.num_groups,
    "--groups",
    help="With --replicas: groups of users per replica; prompts of a group start alike.",
    min=1,
    max=10_000,
)
GROUP_TOKENS = flags.Option(
    Groups.prefix_tokens,
    "--group-tokens",
    help="With --replicas: tokens that all prompts of a group start with.",
    min=0,
    max=1 << 20,
)


def simulate_fleet(
    console: Console,
    replicas: str,
    routing: str,
    budget: str,
    requests: Groups | tuple[Arrival, ...],
    room: Room,
    cost: Cost,
    seed: int,
    as_json: bool,
    output: Path | None,
    plot_file: Path | None,
) -> None:
    """Plays every policy with every number of replicas, and tells what became of the requests."""
    counts, names = numbers_of_replicas(replicas), [part.strip() for part in routing.split(",")]
    for name in names:
        routing_of(name)
    if "," in budget:
        raise BadInput("bench", "--budgets", budget, "a single one, with --replicas")
    plays = [Play(name, count, requests, room, policy_of(budget), cost, seed) for count in counts for name in names]
    found = outcomes_of(plays, usable_threads())
    quiet = not console.is_terminal
    outcomes = list(track(found, "simulating", len(plays), console=console, transient=True, disable=quiet))
    title = _title(requests)
    notes = [
        *setting_lines(cost, room),
        f"Prefix-aware: a replica with the prefix may have {MOST_AHEAD} requests more than one without.",
        "Hits and waits are those of requests after the first quarter, which fills the caches.",
    ]
    print_fleet(console, outcomes, title, notes)
    results = [fleet_figures(outcome) for outcome in outcomes]
    emit({"workload": title, "cost": asdict(cost), "room": asdict(room), "replicas": results}, as_json, output)
    if plot_file:
        is_picture = plot_file.suffix == ".svg"
        heading = f"samebits bench schedule --replicas {replicas}: {title}"
        write_atomically(plot_file, fleet_svg(outcomes) if is_picture else fleet_page(outcomes, heading, notes))


def _title(requests: Groups | tuple[Arrival, ...]) -> str:
    if isinstance(requests, Groups):
        return (
            f"per replica {requests.rate:g} requests per second for {requests.seconds:g} s, from "
            f"{requests.num_groups} groups that share {requests.prefix_tokens} tokens, seed {requests.seed}"
        )
    return f"{len(requests)} recorded requests"
