"""A run's outcome for people and for programs: summary table, JSON, certificate."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits.backends.discovery import Found
from samebits.core.numerics import NUMERICS_VERSION
from samebits.ops import OPS
from samebits.receipts.record import canonical
from samebits.verify.coverage import as_json as coverage_json
from samebits.verify.coverage import coverage, stated_classes
from samebits.verify.model import Result, Status
from samebits.verify.proof import TIERS, Proof, prove
from samebits.verify.provenance import environment, kernel_hashes

STATUSES: tuple[str, ...] = get_args(Status)
MAX_SHOWN = 20  # failures that are printed one by one


@dataclass(frozen=True)
class Run:
    """Everything a report needs.

    drawn        "quick" or "full": the set whose cases were drawn
    selection    what the command line left of it: op, case, tier, preset and sizes, as far as given
    seeds        of drawn cases, the first and the last
    num_missing  cases that did not run
    """

    found: Found
    results: list[Result]
    seconds: float
    drawn: str
    selection: Mapping[str, Any]
    seeds: tuple[int, int]
    num_missing: int = 0

    @property
    def set(self) -> str:
        """The set that ran whole, or "part"."""
        return "part" if self.selection or self.num_missing else self.drawn

    @property
    def failures(self) -> list[Result]:
        return [r for r in self.results if r.status == "fail"]

    def counts(self, op: str | None = None, tier: str | None = None) -> Counter[str]:
        chosen = (r for r in self.results if op in (None, r.op) and tier in (None, r.tier))
        return Counter(r.status for r in chosen)

    @cached_property
    def proof(self) -> Proof:
        """What the run proves."""
        return prove(
            self.results,
            missing=self.num_missing,
            is_whole=not self.selection.keys() - {"tier"},
            by_case=bool(self.selection.keys() & {"case", "sizes", "preset"}),
        )

    @property
    def exit_status(self) -> int:
        """130 if interrupted, 1 for a failure or if nothing was compared, 3 if a case is unfinished, else 0."""
        statuses = self.counts()
        if self.num_missing:
            return 130
        if statuses["fail"] or not (statuses["pass"] or statuses["unfinished"]):
            return 1
        return 3 if statuses["unfinished"] else 0


def as_json(run: Run) -> dict[str, Any]:
    facts = environment(run.found)
    return {
        "device": facts["device"],
        "numerics_version": NUMERICS_VERSION,
        "environment": facts,
        "seconds": round(run.seconds, 2),
        "set": run.set,
        "selection": dict(run.selection),
        "seeds": list(run.seeds),
        "num_missing": run.num_missing,
        "proven": run.proof.as_json(),
        "results": [r.as_json() for r in run.results],
    }


def certificate(run: Run) -> dict[str, Any]:
    """Return what was proven here and of what, with a hash over every verdict."""
    return {
        "certificate": "samebits-conformance",
        "environment": {**environment(run.found), **kernel_hashes(run.found)},
        "set": run.set,
        "drawn": run.drawn,
        "selection": dict(run.selection),
        "seeds": list(run.seeds),
        "proven_tiers": run.proof.whole_tiers,
        "proven": run.proof.as_json(),
        "counts": {t: dict(run.counts(tier=t)) for t in TIERS},
        "unsupported": _lines(run, "unsupported"),
        "not_compared": sorted({text for r in run.results for text in r.not_compared}),
        "failed": _lines(run, "fail"),
        "unfinished": _lines(run, "unfinished"),
        "coverage": coverage_json(run.results),
        "verdicts_sha256": verdicts_sha256(run),
    }


def verdicts_sha256(run: Run) -> str:
    """Return a hash of what was asked for and of every verdict with the checks that were made.

    It is the SHA-256 of canonical JSON (as of receipts) and the same on every machine that gives the same verdicts.
    """
    asked = {"drawn": run.drawn, "selection": dict(run.selection), "seeds": list(run.seeds), "set": run.set}
    verdicts = sorted([r.op, r.case, r.tier, r.status, list(r.checks)] for r in run.results)
    content = {**asked, "numerics_version": NUMERICS_VERSION, "verdicts": verdicts}
    return hashlib.sha256(canonical(content)).hexdigest()


def _lines(run: Run, status: str) -> list[tuple[str, str, str, str]]:
    return sorted({(r.op, r.case, r.tier, r.reason) for r in run.results if r.status == status})


def print_summary(console: Console, run: Run) -> None:
    table = Table(title=f"{run.found.name}: {len(run.results)} verdicts in {run.seconds:.0f} s")
    for column in ("op", *TIERS, "classes", "pairs"):
        table.add_column(column)
    for op in dict.fromkeys(r.op for r in run.results):
        table.add_row(op, *(_cell(run.counts(op, tier)) for tier in TIERS), *_reached(run, op))
    console.print(table)
    troubles = [r for status in ("fail", "unfinished") for r in run.results if r.status == status]
    for result in troubles[:MAX_SHOWN]:
        what = f"{result.op}/{result.case} at {result.tier}: {result.reason}"
        console.print(f"[red]{result.status}[/] {escape(what)}", highlight=False, soft_wrap=True)
        console.print(f"     replay: {escape(result.replay)}", highlight=False, soft_wrap=True)
    if len(troubles) > MAX_SHOWN:
        console.print(f"... and {len(troubles) - MAX_SHOWN} more; --json has them all")
    reasons = Counter(r.reason for r in run.results if r.status == "unsupported")
    for reason, count in reasons.most_common(10):
        console.print(f"[yellow]unsupported[/] {count} x {escape(reason)}", highlight=False, soft_wrap=True)
    console.print(f"{totals(run)}; {run.proof}", highlight=False, markup=False, soft_wrap=True)
    first, last = run.seeds
    shown = f"seed {first}" if first == last else f"seeds {first} to {last}"
    console.print(f"cases drawn with {shown}; another --seed draws others", highlight=False)


def totals(run: Run) -> str:
    """Say how many verdicts there are of each status; unfinished ones only where there are some."""
    counts = run.counts()
    return ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s] or s != "unfinished")


def _reached(run: Run, op: str) -> tuple[str, str]:
    """Classes of the op's space that cases reached at some tier, of those it states; and pairs of them."""
    tiers = coverage(r for r in run.results if r.op == op)[op].values()
    classes = {c for reached in tiers for c in reached.classes}
    pairs = {p for reached in tiers for p in reached.pairs}
    return (f"{len(classes)} of {len(stated_classes(OPS[op]))}", str(len(pairs))) if classes else ("-", "-")


def _cell(counts: Counter[str]) -> str:
    parts = [f"{counts['pass']} pass"] if counts["pass"] else []
    parts += [f"[red]{counts['fail']} fail[/]"] if counts["fail"] else []
    parts += [f"[red]{counts['unfinished']} unfinished[/]"] if counts["unfinished"] else []
    parts += [f"[yellow]{counts['unsupported']} no[/]"] if counts["unsupported"] else []
    return ", ".join(parts) or "-"
