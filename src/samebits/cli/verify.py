"""`samebits verify`: prove a backend, case by case."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import track

from samebits.backends.discovery import Found
from samebits.cli import flags
from samebits.cli.backend_option import BackendUnderTest, backend_under_test
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.cli.verify_progress import VerifyProgress
from samebits.core.errors import BadInput, Unavailable
from samebits.core.files import write_atomically, write_json
from samebits.core.tiers import Tier
from samebits.verify.coverage import unreached
from samebits.verify.html import html_page
from samebits.verify.model import Result, Task
from samebits.verify.order import breadth_first
from samebits.verify.perf import Timing, perf_page, print_timings, time_case
from samebits.verify.pool import Pool
from samebits.verify.proof import TIERS, num_missing
from samebits.verify.provenance import environment
from samebits.verify.report import Run, certificate, print_summary
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
    """Run the tasks breadth first and return results in the order of `tasks`. Ctrl-C keeps those so far."""
    by_case: dict[tuple[str, str], list[Result]] = {}
    with VerifyProgress(console, len(tasks), jobs) as progress, suppress(KeyboardInterrupt):
        for results in Pool(backend, jobs, seconds).run(breadth_first(tasks)):
            by_case[results[0].op, results[0].case] = results
            progress.advance(results)
    return [r for t in tasks for r in by_case.get((t.op, t.case), [])]


def verify(
    context: flags.Context,
    backend: BackendUnderTest = None,
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
    seconds: float = flags.Option(
        120.0,
        "--time-limit",
        help="The most seconds that a case may take on an idle machine; a slow or busy one gets more.",
        min=0.1,
    ),
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

    Exit status: 0 if nothing failed, 1 if a case failed, nothing was compared or a stated range was not reached, 2 for
    a mistake in the call, 3 if nothing failed but a case had no answer within the time limit.

    Ctrl-C ends the run early: the verdicts so far are reported, nothing is proven, no certificate is written, and the
    status is 130.
    """
    console = console_for("verify", as_json, output=output, html=html_file, certificate=certificate_file)
    tiers = (_tier(tier),) if tier else TIERS
    jobs = jobs or os.cpu_count() or 1
    found = backend_under_test(backend)
    name = found.name
    if preset is None:
        tasks = tasks_for(name, tiers, op=op, case=case, dims=sizes(context.args), full=full, seed=seed)
    else:
        tasks = preset_tasks(name, tiers, preset, seed)
    if perf:
        timings = _time(found, tasks, tiers, console)
        emit({"environment": environment(found), "timings": [t.as_json() for t in timings]}, as_json, output)
        if html_file:
            write_atomically(html_file, perf_page(timings, f"{found.name}: GB/s by case"))
        return
    started = time.monotonic()
    results = run_tasks(tasks, name, jobs, seconds, console)
    given = {"op": op, "case": case, "tier": tier, "preset": preset, "sizes": sizes(context.args)}
    selection = {what: value for what, value in given.items() if value}
    gaps: list[str] = unreached(tasks) if case is None and preset is None and not context.args else []
    last_seed = seed
    missing = num_missing(tasks, results)
    while hours is not None and not missing and time.monotonic() - started < hours * 3600:
        last_seed += 1
        more = tasks_for(name, tiers, op=op, case=case, dims=sizes(context.args), full=False, seed=last_seed)
        further = run_tasks(more, name, jobs, seconds, console)
        missing = num_missing(more, further)
        results += further
    drawn = "full" if full else "quick"
    run = Run(found, results, time.monotonic() - started, drawn, selection, (seed, last_seed), missing)
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
    sys.exit(run.exit_status or (1 if gaps else 0))


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
