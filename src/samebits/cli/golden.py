"""`samebits golden`: make artifacts, and compare a backend with them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from samebits.backends.discovery import get
from samebits.cli import flags
from samebits.cli.backend_option import BackendUnderTest, backend_under_test
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import BadInput, Unsupported
from samebits.core.tiers import Tier
from samebits.ops import OPS
from samebits.verify.artifacts import ARTIFACT_VERSION, find_artifacts
from samebits.verify.golden import (
    Verdict,
    check_folder,
    chosen_cases,
    make_artifact,
    refuse_existing,
    write_artifact,
)
from samebits.verify.provenance import environment

app = flags.Group(help="Make golden artifacts, and compare a backend with them.")
COLORS = {"pass": "green", "same": "green", "unsupported": "yellow", "close": "yellow"}  # anything else is red
SHOWN = 20

T = TypeVar("T")


def with_progress(items: Iterable[T], total: int, what: str, console: Console) -> Iterator[T]:
    """The items, with a progress bar where someone is looking."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=total)
        for item in items:
            yield item
            progress.advance(bar)


def print_table(console: Console, title: str, rows: list[tuple[str, str]], statuses: Iterable[str]) -> None:
    """One row per op and one column per status that occurs, from (op, status) pairs."""
    counts = Counter(rows)
    shown = [s for s in statuses if any(s == status for _, status in rows)]
    table = Table(title=title)
    for column in ("op", *shown):
        table.add_column(column)
    for op in dict.fromkeys(op for op, _ in rows):
        cells = (f"[{COLORS.get(s, 'red')}]{counts[op, s]}[/]" if counts[op, s] else "-" for s in shown)
        table.add_row(escape(ascii(op)[1:-1]), *cells)
    console.print(table)


def print_lines(console: Console, lines: list[tuple[str, str]]) -> None:
    """One line each for (status, text); strangers' text is never read as markup."""
    for status, text in lines[:SHOWN]:
        console.print(f"[{COLORS.get(status, 'red')}]{status}[/] {escape(text)}", highlight=False, soft_wrap=True)
    if len(lines) > SHOWN:
        console.print(f"... and {len(lines) - SHOWN} more; --json has them all")


@app.add("make")
def make(
    directory: Path = flags.Argument(..., metavar="DIR", help="Where to write a folder OP/CASE for every case."),
    op: str = flags.Option(None, "--op", help="Use only the cases of this op."),
    small: bool = flags.Option(False, "--small", help="Use only the few cases that are in the repository."),
    full: bool = flags.Option(False, "--full/--quick", help="Use every case, or only those of the quick set."),
    backend: str = flags.Option(
        "reference", "--backend", envvar="SAMEBITS_BACKEND", help="The backend, by name or as module:Class."
    ),
    tier: str = flags.Option("portable", "--tier", help="The tier: fast, invariant or portable."),
    seed: int = flags.Option(0, "--seed", help="The seed of the inputs.", min=0, max=2**63 - 1),
    force: bool = flags.Option(False, "--force", help="Replace folders that exist."),
) -> None:
    """Run cases on a backend and store their inputs and outputs, with hashes and provenance."""
    console, found, numerics = Console(), get(backend), Tier.asked(tier)
    cases = chosen_cases(op, small=small, full=full)
    refuse_existing([directory / o.name / c.id for o, c in cases], force)
    size, refused = 0, []
    for record, case in with_progress(cases, len(cases), "making", console):
        try:
            size += write_artifact(directory, make_artifact(found, record, case, seed, numerics), force)
        except Unsupported as error:
            refused.append(("unsupported", f"{record.name}/{case.id}: {error}"))
    print_lines(console, refused)
    console.print(
        f"{len(cases) - len(refused)} artifacts, {size / 1e6:.1f} MB in {directory}", highlight=False, markup=False
    )


@app.add("check")
def check(
    directory: Path = flags.Argument(..., metavar="DIR", help="A folder of OP/CASE folders, or one of those."),
    backend: BackendUnderTest = None,
    op: str = flags.Option(None, "--op", help="Use only the cases of this op."),
    tier: str = flags.Option(
        "portable",
        "--tier",
        envvar="SAMEBITS_NUMERICS",
        help="The tier: portable compares bits, fast and invariant compare within error bounds.",
    ),
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Run stored inputs on a backend and compare the results with the stored outputs.

    Exit status: 0 if nothing differs, 1 if something does or nothing could be compared, 2 for artifacts that cannot be
    used or a mistake in the call.
    """
    console = console_for("golden check", as_json, output=output)
    found, numerics = backend_under_test(backend), Tier.asked(tier)
    folders = find_artifacts(directory)
    if op:
        name = OPS[op].name
        folders = {key: folder for key, folder in folders.items() if name == (key[0] or folder.parent.name)}
    if not folders:
        raise BadInput("golden", "--op", op, f"an op with artifacts in {directory}")
    started = time.monotonic()
    verdicts: list[Verdict] = [
        check_folder(found, folder, key, numerics)
        for key, folder in with_progress(folders.items(), len(folders), "checking", console)
    ]
    counts: Counter[str] = Counter(v.status for v in verdicts)
    title = f"{found.name} at {numerics.label}: {len(verdicts)} artifacts in {time.monotonic() - started:.1f} s"
    statuses = ("pass", "fail", "unsupported", "broken")
    print_table(console, title, [(v.op, v.status) for v in verdicts], statuses)
    lines = [(v.status, v.reason if v.status == "broken" else f"{v.op}/{v.case}: {v.reason}") for v in verdicts]
    print_lines(console, [line for line in lines if line[0] != "pass"])
    console.print(", ".join(f"{counts[s]} {s}" for s in statuses), highlight=False)
    is_compared = bool(counts["pass"] or counts["fail"])
    if not is_compared:
        console.print(f"[red]nothing was compared[/]: {found.name} runs none of these artifacts", highlight=False)
    facts = {"artifact_version": ARTIFACT_VERSION, "environment": environment(found), "tier": numerics.label}
    emit({**facts, "results": [v.as_json() for v in verdicts]}, as_json, output)
    sys.exit(2 if counts["broken"] else 1 if counts["fail"] or not is_compared else 0)
