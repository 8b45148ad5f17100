"""Writes docs/ops.md from the op records (`make docs`); a test fails when it is stale."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from samebits.backends.discovery import NEED_EXTRAS, discover
from samebits.cli.support import matrix
from samebits.core.format import BLOCK
from samebits.core.tiers import Tier
from samebits.ops import OPS, Op

HEAD = """# Ops

Generated from the op records by `make docs`; do not edit. Dimensions: a name is the same size wherever it
appears in an op; `...` is any number of leading axes. A tensor without a note on its format takes `f32`, `f16`
or `bf16`, is widened to float32, and results are rounded once to the format given. The reference of each op,
in `src/samebits/ops/`, is its definition; the arithmetic it is written in is [numerics.md](numerics.md).
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _overview() -> list[str]:
    lines = ["| op | what it gives | also called |", "|---|---|---|"]
    for op in sorted(OPS, key=lambda op: op.name):
        aliases = ", ".join(f"`{a}`" for a in op.aliases)
        lines.append(f"| [`{op.name}`](#{op.name}) | {_cell(op.summary)} | {aliases} |")
    return lines


def _support() -> list[str]:
    """Strongest tier by op, format and in-tree backend that needs no extra."""
    backends = [f for f in discover() if f.origin == "built in" and f.name not in NEED_EXTRAS]
    lines = [
        "## Support",
        "",
        f"| op | formats | {' | '.join(f.name for f in backends)} |",
        "|---|---|" + "---|" * len(backends),
    ]
    for op in sorted(OPS, key=lambda op: op.name):
        rows: dict[tuple[str, ...], list[str]] = {}
        cells = {(s.format, s.backend): s for s in matrix([op], backends)}
        for fmt in op.format_axis.formats:
            found = [cells[fmt, f.name].tier for f in backends]
            shown = tuple("no" if t is None else "computes nothing" if t == Tier.NONE.label else t for t in found)
            rows.setdefault(shown, []).append(fmt)
        for shown, formats in rows.items():
            lines.append(f"| `{op.name}` | {', '.join(formats)} | {' | '.join(shown)} |")
    return lines


def _section(op: Op) -> list[str]:
    lines = [f"## {op.name}", "", _cell(inspect.getdoc(op.reference) or ""), ""]
    lines += ["| argument | shape | formats | |", "|---|---|---|---|"]
    for t in op.inputs:
        dims = " or ".join(f"`[{d}]`" for d in t.dims_choices)
        note = "written in place; " if t.name in op.writes else ""
        note += "optional; " if t.optional else ""
        ending = f"; rows of a block format are multiples of {BLOCK}" if t.in_blocks else ""
        lines.append(f"| `{t.name}` | {dims} | {', '.join(t.formats)} | {_cell(note + t.doc + ending)} |")
    for a in op.attrs:
        lines.append(f"| `{a.name}={a.default!r}` | | {a.kind.__name__} | {_cell(a.doc)} |")
    for r in op.results:
        where = f"`{r.alias_of}`, updated" if r.alias_of else f"`[{r.dims}]`"
        condition = f"with `{r.when}`; " if r.when else ""
        lines.append(f"| → `{r.name}` | {where} | {r.format.lstrip('=@')} | {_cell(condition + r.doc)} |")
    axes = ", ".join(f"`{a}`" for a in op.invariant_axes)
    quick = sum(not c.full for c in op.cases)
    lines += [
        "",
        f"Invariant along {axes}. Open at `fast`: {op.freedom or 'nothing; results are exact'}. Cases: {quick} with "
        f"names, {len(op.cases) - quick} more in full; more are drawn from {_space(op)}.",
    ]
    if op.smallest is not None:
        lines.append(f"Intermediates are 0 or of magnitude 2^{op.smallest} and more.")
    if op.decompose is not None:
        lines.append("Fused: equals its decomposition bit for bit.")
    return lines


def _space(op: Op) -> str:
    """What cases are drawn from, in a few words."""
    if op.space is None:
        return "nothing"
    classes = sum(len(f.stated) for f in op.space.factors)
    return f"{classes} classes of {', '.join(f'`{f.name}`' for f in op.space.factors)}"


def ops_markdown() -> str:
    """The whole page."""
    parts = [HEAD, *_overview(), "", *_support()]
    for op in sorted(OPS, key=lambda op: op.name):
        parts += ["", *_section(op)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(ops_markdown(), encoding="utf-8")
