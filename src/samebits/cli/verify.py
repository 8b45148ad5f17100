"""`samebits verify`: prove a backend, case by case."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, track

from samebits.backends.discovery import Found, get
from samebits.cli import flags
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import BadInput, Unavailable
from samebits.core.files import write_atomically, write_json
from samebits.core.tiers import Tier
from samebits.verify.coverage import unreached
from samebits.verify.html import html_page
from samebits.verify.model import Result, Task
from samebits.verify.perf import Timing, perf_page, print_timings, time_case
from samebits.verify.pool import Pool
from samebits.verify.report import TIERS, Run, certificate, environment, print_summary
from samebits.verify.report import as_json as run_as_json
from samebits.verify.select import preset_tasks, tasks_for

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def sizes(arguments: list[str]) -> dict[str, str]:
    """The rest of the command line as `--name value` pairs."""
    pairs = {}
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if not name.startswith("--") or not rest:
            raise BadInput("verify", "argument", repr(name), "a known option, or a size as --name VALUE")
        pairs[name[2:].replace("-", "_")] = rest.pop(0)
    return pairs


def _tier(text: str) -> str:
    """The tier's label; BadInput for one at which there is nothing to prove."""
    label = Tier.parse(text).label
    if label not in TIERS:
        raise BadInput("verify", "--tier", repr(text), f"one of {', '.join(TIERS)}")
    return label


def run_tasks(tasks: list[Task], backend: str, jobs: int, seconds: float, console: Console) -> list[Result]:
    """Results in the order of the tasks, with a progress bar where someone is looking; Ctrl-C keeps those so far."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    by_case: dict[tuple[str, str], list[Result]] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("verifying", total=len(tasks))
        with suppress(KeyboardInterrupt):
            for results in Pool(backend, jobs, seconds).run(tasks):
                by_case[results[0].op, results[0].case] = results
                progress.update(bar, advance=1, description=results[0].op)
    return [r for t in tasks for r in by_case.get((t.op, t.case), [])]


def verify(
    context: flags.Context,
    backend: str = flags.Option(
        "reference", "--backend", envvar="SAMEBITS_BACKEND", help="The backend, by name or as module:Class."
    ),
    op: str = flags.Option(None, "--op", help="Check only this op."),
    case: str = flags.Option(None, "--case", help="Check only this case of --op."),
    tier: str = flags.Option(
        None, "--tier", envvar="SAMEBITS_NUMERICS", help="The tier: fast, invariant or portable; all three if absent."
    ),
    full: bool = flags.Option(
        False,
        "--full/--quick",
        help="Cover every pair of the things that kernels may branch on, or each of them once, in a minute or two.",
    ),
    hours: float = flags.Option(
        None, "--hours", help="Keep drawing further cases, with new seeds, for this many hours.", min=0.0, max=10_000.0
    ),
    jobs: int = flags.Option(
        None, "-j", help="The number of worker processes; one per core if absent.", min=1, max=256
    ),
    seed: int = flags.Option(0, "--seed", help="The seed of the drawn cases and of all inputs.", min=0, max=2**62),
    seconds: float = flags.Option(120.0, "--time-limit", help="The most seconds that a case may take.", min=0.1),
    perf: bool = flags.Option(False, "--perf", help="Time the cases instead of checking them."),
    preset: str = flags.Option(
        None, "--preset", help="A named set of cases: 'paged' is 16 sequences of 512 tokens, 32 heads of 128."
    ),
    as_json: AsJson = False,
    output: Output = None,
    html_file: Path = flags.Option(None, "--html", help="Write an HTML page of the results to this file."),
    certificate_file: Path = flags.Option(
        None, "--certificate", help="Write a certificate of what was proven to this file."
    ),
) -> None:
    """Prove that a backend computes what the reference defines.

    Sizes such as --m 32 --n 128 --k 64 make a case of their own.

    Exit status: 0 if nothing failed and every stated range was reached, 1 otherwise, 2 for a mistake in the call.

    Ctrl-C ends the run early: the verdicts so far are reported, no certificate is written, and the status is 130.
    """
    console = console_for("verify", as_json, output=output, html=html_file, certificate=certificate_file)
    tiers = (_tier(tier),) if tier else TIERS
    jobs = jobs or os.cpu_count() or 1
    found = get(backend)
    if preset is None:
        tasks = tasks_for(backend, tiers, op=op, case=case, dims=sizes(context.args), full=full, seed=seed)
    else:
        tasks = preset_tasks(backend, tiers, preset, seed)
    if perf:
        timings = _time(found, tasks, tiers, console)
        emit({"environment": environment(found), "timings": [t.as_json() for t in timings]}, as_json, output)
        if html_file:
            write_atomically(html_file, perf_page(timings, f"{found.name}: GB/s by case"))
        return
    started = time.monotonic()
    results = run_tasks(tasks, backend, jobs, seconds, console)
    is_whole = op is None and case is None and preset is None and tier is None
    gaps: list[str] = unreached(tasks) if case is None and preset is None and not context.args else []
    last_seed = seed
    missing = _num_missing(tasks, results)
    while hours is not None and not missing and time.monotonic() - started < hours * 3600:
        last_seed += 1
        more = tasks_for(backend, tiers, op=op, case=case, dims=sizes(context.args), full=False, seed=last_seed)
        further = run_tasks(more, backend, jobs, seconds, console)
        missing = _num_missing(more, further)
        results += further
    run_set = "part" if not is_whole or missing else "full" if full else "quick"
    run = Run(found, results, time.monotonic() - started, run_set, (seed, last_seed))
    print_summary(console, run)
    for gap in gaps:
        console.print(f"[red]not reached[/] {gap}", highlight=False)
    emit(run_as_json(run), as_json, output)
    if certificate_file and not missing:
        write_json(certificate_file, certificate(run))
    if html_file:
        write_atomically(html_file, html_page(run))
    if missing:
        console.print(f"[red]interrupted[/]: {missing} cases did not run", highlight=False)
        sys.exit(130)
    sys.exit(1 if run.failures or gaps else 0)


def _num_missing(tasks: list[Task], results: list[Result]) -> int:
    """Cases without a verdict: an interrupted run has some."""
    return len({(t.op, t.case) for t in tasks} - {(r.op, r.case) for r in results})


def _time(found: Found, tasks: list[Task], tiers: tuple[str, ...], console: Console) -> list[Timing]:
    """Times every case at every tier in this process, one after another."""
    if found.backend is None:
        raise Unavailable(found.reason)
    timings = []
    for task in track(tasks, "timing", console=console, transient=True, disable=not console.is_terminal):
        for tier in tiers:
            timing = time_case(found.backend, task, Tier.parse(tier))
            timings += [timing] if timing else []
    print_timings(console, timings)
    return timings
