"""Write docs/defects.md: every planted defect and the case that catches it. `make docs` runs this:

python tests/verify/defects_page.py docs/defects.md
"""

from __future__ import annotations

import html
import json
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from defects import KLASSES, PLANTED
from planted_base import Defect

from samebits.verify.model import CHECKS

CAUGHT = Path(__file__).parent / "caught.json"
MAX_OPS, MAX_FACTORS = 3, 3  # named in a cell; the title of a case's cell has all its factors
HEAD = """# Planted defects

Generated from `tests/verify` by `make docs`; do not edit.

A conformance suite is worth what it catches. Samebits keeps {num_defects} wrong backends: each is the reference with
one defect that a kernel may have. `samebits verify` must fail each of them by a case that it draws with its usual seed:
{num_quick} by a quick run's cases, {num_full} by those that a full run adds. Tests play these cases again. They also
prove that each defect changes the bits of one scene and none of another one much like it, so that no defect is caught
merely because everything about it is wrong.

[Write a backend](write-a-backend.md) says how to run verify, [CONTRIBUTING.md](../CONTRIBUTING.md) how to plant a
defect.

In the tables, a case is cut to its first factors: hold the pointer over it to see all of them. In front of a case,
`reruns:` means that one executable runs several times with other inputs, and `soak:` that it runs thousands of times.
A case "after" another one is played on the same backend. The check is the first one that fails:

| check | what failed | defects |
|---|---|---|
"""
TABLE = "\n| defect | ops | what it does wrong | caught by | check |\n|---|---|---|---|---|\n"


def defects_markdown() -> str:
    """Return the page: a section with a table for each class, in the order of KLASSES."""
    caught: dict[str, dict[str, str]] = json.loads(CAUGHT.read_text())
    sets = [found["set"] for found in caught.values()]
    counts = {"num_defects": len(PLANTED), "num_quick": sets.count("quick"), "num_full": sets.count("full")}
    reasons = Counter(found["check"] for found in caught.values())
    checks = "".join(f"| {name} | {text} | {reasons[name]} |\n" for name, text in CHECKS.items() if reasons[name])
    return HEAD.format(**counts) + checks + "".join(_section(klass, caught) for klass in KLASSES)


def _section(klass: str, caught: dict[str, dict[str, str]]) -> str:
    """Return the section of a class; its first sentence is that of the class's module."""
    about = (import_module(f"planted_{klass}").__doc__ or "").partition(". ")[0].rstrip(".\n")
    defects = [d for d in PLANTED.values() if d.klass == klass]
    rows = (_row(defect, caught.get(defect.__name__)) for defect in defects)
    return f"\n## {klass.capitalize()}: {len(defects)}\n\n{about}.\n{TABLE}" + "".join(rows)


def _row(defect: type[Defect], found: dict[str, str] | None) -> str:
    ops = ", ".join(defect.ops) if len(defect.ops) <= MAX_OPS else f"{len(defect.ops)} ops"
    cells = [f"`{defect.__name__}`", ops, html.escape(defect.__doc__ or "", quote=False)]
    cells += ["not hunted yet", ""] if found is None else ["".join(_case(found)), found["check"]]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


def _case(found: dict[str, str]) -> Iterator[str]:
    yield f"{found['set']}, {found['op']}: {_code(found['case'])}"
    if "after" in found:
        yield f" after {_code(found['after'])}"


def _code(case: str) -> str:
    """Return a case's id as code, cut to its first factors, with the whole id as title."""
    factors = case.split(",")
    if len(factors) <= MAX_FACTORS:
        return f"<code>{html.escape(case)}</code>"
    return f'<code title="{html.escape(case)}">{html.escape(", ".join(factors[:MAX_FACTORS]))}, …</code>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(defects_markdown())
