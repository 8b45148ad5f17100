"""`samebits compare`: two sets of artifacts side by side, without running anything."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from samebits.cli import flags
from samebits.cli.golden import print_lines, print_table, with_progress
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.verify.artifacts import ARTIFACT_VERSION, find_artifacts
from samebits.verify.compare import Comparison, Distance, compare_trees

STATUSES = ("same", "close", "different", "missing", "broken")


def _line(c: Comparison) -> str:
    worst = max(c.distances, key=lambda d: d.max_abs, default=Distance(""))
    far = f" (max abs {worst.max_abs:.3g}"
    far += f", {worst.max_ulp} ulp" if worst.max_ulp is not None else ""
    far += f", NMSE {worst.nmse:.3g})" if worst.nmse is not None else ")"
    return f"{c.op}/{c.case}: {c.reason}{far if c.distances else ''}"


def compare(
    a: Path = flags.Argument(..., metavar="A", help="A folder of OP/CASE folders, or one of those."),
    b: Path = flags.Argument(..., metavar="B", help="The set to compare A with."),
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare two sets of artifacts: bits first, then by each op's rule and error bounds.

    Exit status: 0 if all are the same or close, 1 if something differs or is missing, 2 for artifacts that cannot be
    used or a mistake in the call.
    """
    console = console_for("compare", as_json, output=output)
    total = len({*find_artifacts(a), *find_artifacts(b)})
    found = list(with_progress(compare_trees(a, b), total, "comparing", console))
    print_table(console, f"{total} artifacts", [(c.op, c.status) for c in found], STATUSES)
    worst_first = sorted((c for c in found if c.status != "same"), key=lambda c: -STATUSES.index(c.status))
    print_lines(console, [(c.status, c.reason if c.status == "broken" else _line(c)) for c in worst_first])
    counts: Counter[str] = Counter(c.status for c in found)
    console.print(", ".join(f"{counts[s]} {s}" for s in STATUSES), highlight=False)
    report = {"artifact_version": ARTIFACT_VERSION, "a": str(a), "b": str(b)}
    emit({**report, "results": [c.as_json() for c in found]}, as_json, output)
    sys.exit(2 if counts["broken"] else 1 if counts["different"] or counts["missing"] else 0)
