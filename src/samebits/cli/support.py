"""`samebits support`: op x format x backend x tier, read from the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits.backends.discovery import Found, discover, get
from samebits.backends.support import candidates, op_call, strongest_tier
from samebits.cli import flags
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.tiers import Tier
from samebits.ops import OPS, Bound, Op, bind, make_inputs


@dataclass(frozen=True)
class Support:
    """One cell of the matrix. `tier` is the strongest that holds; without one, `reason` says why."""

    op: str
    format: str
    backend: str
    tier: str | None
    reason: str | None


def calls_by_format(op: Op) -> dict[str, Bound]:
    """For every format of the op's format axis, the first case that uses it, as a checked call."""
    calls: dict[str, Bound] = {}
    axis = op.format_axis
    for case in op.cases:
        stated = case.formats.get(axis.name) or case.extra.get("k")
        if case.full or stated in calls or len(calls) == len(axis.formats):
            continue
        bound = bind(op, **make_inputs(op, case))
        calls.setdefault(bound.specs[axis.name].format, bound)
    return {fmt: calls[fmt] for fmt in axis.formats if fmt in calls}


def matrix(ops: list[Op], backends: list[Found]) -> Iterator[Support]:
    """The whole table, one cell at a time."""
    for op in ops:
        for fmt, bound in calls_by_format(op).items():
            for found in backends:
                if found.backend is None or found.caps is None:
                    yield Support(op.name, fmt, found.name, None, found.reason)
                    continue
                tier = strongest_tier(found.backend, found.caps, op, bound.specs, bound.attrs)
                reason = None
                if tier is None:
                    call = op_call(op, bound.specs, bound.attrs, Tier.NONE)
                    reason = "; ".join(candidates(found.backend, call)[1])
                yield Support(op.name, fmt, found.name, tier.label if tier is not None else None, reason)


def print_matrix(console: Console, ops: list[Op], found: list[Found]) -> None:
    """The table of the backends that are here, then a line for each that is not."""
    backends = [f for f in found if f.backend is not None]
    cells = {(s.op, s.format, s.backend): s for s in matrix(ops, backends)}
    table = Table(title="strongest tier by op, format and backend")
    for column in ("op", "format", *(f.name for f in backends)):
        table.add_column(column)
    for op in ops:
        groups: dict[tuple[str, ...], list[str]] = {}
        for fmt in op.format_axis.formats:
            row = tuple(_shown(cells[op.name, fmt, f.name]) for f in backends if (op.name, fmt, f.name) in cells)
            if row:
                groups.setdefault(row, []).append(fmt)
        for i, (row, formats) in enumerate(groups.items()):
            table.add_row(op.name if i == 0 else "", " ".join(formats), *row)
    console.print(table)
    for absent in (f for f in found if f.backend is None):
        console.print(f"{absent.name}: [red]unavailable:[/] {escape(absent.reason)}", highlight=False, soft_wrap=True)


def _shown(cell: Support) -> str:
    if cell.tier is None:
        return f"[red]no:[/] {escape(cell.reason or '')}"
    return "-" if cell.tier == Tier.NONE.label else cell.tier


def support(
    op: str = flags.Option(None, "--op", help="Show only this op."),
    backend: str = flags.Option(None, "--backend", envvar="SAMEBITS_BACKEND", help="Show only this backend."),
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show which op runs in which format on which backend, and the strongest tier it keeps there."""
    ops = [OPS[op]] if op else list(OPS)
    backends = [get(backend)] if backend else list(discover())
    console = console_for("support", as_json, output=output)
    if as_json or output:
        emit([asdict(cell) for cell in matrix(ops, backends)], as_json, output)
    if not as_json:
        print_matrix(console, ops, backends)
