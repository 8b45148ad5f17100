"""`samebits devices`: what is here, and why something is not."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits.backends.discovery import Found, discover
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import Unavailable
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native


def native_part() -> dict[str, Any]:
    """Whether the compiled kernels are there, and what the CPU offers them."""
    try:
        features = native().cpu_features()
    except Unavailable as error:
        return {"built": False, "reason": str(error)}
    return {"built": True, "cpu_features": sorted(name for name, here in features.items() if here)}


def _as_json(found: Found) -> dict[str, Any]:
    caps = found.caps
    return {
        "name": found.name,
        "origin": found.origin,
        "available": found.backend is not None,
        "reason": found.reason or None,
        "device": caps.device if caps else None,
        "memory_bytes": caps.memory_bytes if caps else None,
        "features": list(caps.features) if caps else [],
        "refuted_tiers": {tier.label: why for tier, why in caps.refuted.items()} if caps else {},
        "languages": [table.language for table in found.backend.kernels()] if found.backend else [],
    }


def print_devices(console: Console) -> None:
    table = Table(title="backends")
    for column in ("backend", "origin", "device", "languages"):
        table.add_column(column, overflow="fold")
    notes = []
    for found in discover():
        facts = _as_json(found)
        refuted = [f"cannot keep {Tier[t.upper()].label}: {why}" for t, why in facts["refuted_tiers"].items()]
        here = escape("; ".join([*facts["features"], *refuted]))
        notes.append(f"{found.name}: {here if facts['available'] else f'[red]unavailable:[/] {escape(found.reason)}'}")
        table.add_row(found.name, found.origin, facts["device"] or "-", ", ".join(facts["languages"]) or "-")
    console.print(table)
    for note in notes:  # whole lines, so that a command among them can be copied
        console.print(note, soft_wrap=True, highlight=False)
    part = native_part()
    if part["built"]:
        console.print(
            f"native CPU kernels: built; this CPU has {', '.join(part['cpu_features']) or 'no extra features'}"
        )
    else:
        console.print(f"native CPU kernels: {escape(part['reason'])}")


def devices(as_json: AsJson = False, output: Output = None) -> None:
    """List the backends, with the reason for each one that cannot run here."""
    console = console_for("devices", as_json, output=output)
    if as_json or output:
        emit({"backends": [_as_json(f) for f in discover()], "native": native_part()}, as_json, output)
    if not as_json:
        print_devices(console)
