"""A run's outcome for people and for programs: summary table, JSON, certificate."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits import __version__
from samebits.backends.discovery import Found
from samebits.core.numerics import NUMERICS_VERSION
from samebits.core.tiers import Tier
from samebits.ops import OPS
from samebits.verify.coverage import as_json as coverage_json
from samebits.verify.coverage import coverage, stated_classes
from samebits.verify.model import Result

TIERS = tuple(t.label for t in Tier if t)


@dataclass(frozen=True)
class Run:
    """Everything a report needs."""

    found: Found
    results: list[Result]
    seconds: float
    set: str  # "quick", "full", or "part" where only some ops, cases or tiers were asked for
    seeds: tuple[int, int]  # of drawn cases, the first and the last

    @property
    def failures(self) -> list[Result]:
        return [r for r in self.results if r.status == "fail"]

    def counts(self, op: str | None = None, tier: str | None = None) -> Counter[str]:
        chosen = (r for r in self.results if op in (None, r.op) and tier in (None, r.tier))
        return Counter(r.status for r in chosen)

    def proven(self) -> list[str]:
        """Tiers at which every case that ran passed, and some did."""
        return [t for t in TIERS if self.counts(tier=t)["pass"] and not self.counts(tier=t)["fail"]]


def environment(found: Found) -> dict[str, Any]:
    """What the outcome depends on."""
    caps = found.caps
    return {
        "backend": found.name,
        "origin": found.origin,
        "device": caps.device if caps else None,
        "features": list(caps.features) if caps else [],
        "refuted_tiers": {t.label: why for t, why in caps.refuted.items()} if caps else {},
        "samebits": __version__,
        "numerics_version": NUMERICS_VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def as_json(run: Run) -> dict[str, Any]:
    facts = environment(run.found)
    return {
        "device": facts["device"],
        "numerics_version": NUMERICS_VERSION,
        "environment": facts,
        "seconds": round(run.seconds, 2),
        "set": run.set,
        "seeds": list(run.seeds),
        "results": [r.as_json() for r in run.results],
    }


def certificate(run: Run) -> dict[str, Any]:
    """What was proven here, with a hash over every verdict."""
    verdicts = sorted((r.op, r.case, r.tier, r.status) for r in run.results)
    digest = hashlib.sha256(json.dumps(verdicts).encode()).hexdigest()
    return {
        "certificate": "samebits-conformance",
        "environment": environment(run.found),
        "set": run.set,
        "seeds": list(run.seeds),
        "proven_tiers": run.proven(),
        "counts": {t: dict(run.counts(tier=t)) for t in TIERS},
        "unsupported": sorted({(r.op, r.case, r.tier, r.reason) for r in run.results if r.status == "unsupported"}),
        "not_compared": sorted({text for r in run.results for text in r.not_compared}),
        "failed": sorted({(r.op, r.case, r.tier, r.reason) for r in run.failures}),
        "coverage": coverage_json(run.results),
        "verdicts_sha256": digest,
    }


def print_summary(console: Console, run: Run) -> None:
    table = Table(title=f"{run.found.name}: {len(run.results)} verdicts in {run.seconds:.0f} s")
    for column in ("op", *TIERS, "classes", "pairs"):
        table.add_column(column)
    for op in dict.fromkeys(r.op for r in run.results):
        table.add_row(op, *(_cell(run.counts(op, tier)) for tier in TIERS), *_reached(run, op))
    console.print(table)
    for result in run.failures[:20]:
        what = f"{result.op}/{result.case} at {result.tier}: {result.reason}"
        console.print(f"[red]fail[/] {escape(what)}", highlight=False, soft_wrap=True)
        console.print(f"     replay: {escape(result.replay)}", highlight=False, soft_wrap=True)
    if len(run.failures) > 20:
        console.print(f"... and {len(run.failures) - 20} more; --json has them all")
    reasons = Counter(r.reason for r in run.results if r.status == "unsupported")
    for reason, count in reasons.most_common(10):
        console.print(f"[yellow]unsupported[/] {count} x {escape(reason)}", highlight=False, soft_wrap=True)
    proven = ", ".join(run.proven()) or "nothing"
    total = run.counts()
    console.print(
        f"{total['pass']} pass, {total['fail']} fail, {total['unsupported']} unsupported; proven: {proven}",
        highlight=False,
    )
    first, last = run.seeds
    shown = f"seed {first}" if first == last else f"seeds {first} to {last}"
    console.print(f"cases drawn with {shown}; another --seed draws others", highlight=False)


def _reached(run: Run, op: str) -> tuple[str, str]:
    """Classes of the op's space that cases reached at some tier, of those it states; and pairs of them."""
    tiers = coverage(r for r in run.results if r.op == op)[op].values()
    classes = {c for reached in tiers for c in reached.classes}
    pairs = {p for reached in tiers for p in reached.pairs}
    return (f"{len(classes)} of {len(stated_classes(OPS[op]))}", str(len(pairs))) if classes else ("-", "-")


def _cell(counts: Counter[str]) -> str:
    parts = [f"{counts['pass']} pass"] if counts["pass"] else []
    parts += [f"[red]{counts['fail']} fail[/]"] if counts["fail"] else []
    parts += [f"[yellow]{counts['unsupported']} no[/]"] if counts["unsupported"] else []
    return ", ".join(parts) or "-"
