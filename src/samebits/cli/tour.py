"""`samebits tour`, which `make run` shows: what neighbours do to a row's bits, the devices, and what to try next."""

from __future__ import annotations

import hashlib

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits import NUMERICS_VERSION, __version__
from samebits.api import functional as F
from samebits.backends.discovery import Found, discover
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.formats import Q4_1

BATCHES = (1, 3, 8, 33)
BLAS = "numpy BLAS, F32"
NEXT = (
    ("samebits run smollm2", "chat with a small model"),
    ("samebits serve", "OpenAI's API and a page; the proof is at http://127.0.0.1:8000/#prove"),
    ("samebits --help", "all commands"),
)


def _hash(x: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()[:12]


def row_hashes() -> dict[str, list[str]]:
    """By product and weights: the hash of row 0 of x @ weight.T, with x cut after each of BATCHES rows."""
    stream = Stream("tour")
    x = stream.child("x").normal((max(BATCHES), 576))
    weight = stream.child("w").normal((64, 576), 0.05)
    packed = Q4_1.pack(weight)
    found = {BLAS: [_hash((x[:b] @ weight.T)[0]) for b in BATCHES]}
    for tier in (Tier.FAST, Tier.INVARIANT, Tier.PORTABLE):
        for name, matrix in (("F32", weight), ("Q4_1", packed)):
            hashes = [_hash(F.gemm(x[:b], matrix, numerics=tier.label)[0]) for b in BATCHES]
            found[f"{tier.label}, {name}"] = hashes
    return found


def _print_contrast(console: Console) -> None:
    found = row_hashes()
    table = Table(title="a matrix product: SHA-256 of row 0's bits, alone and in a batch")
    for column in ("product", *(f"batch {b}" for b in BATCHES)):
        table.add_column(column, no_wrap=True)
    for name, hashes in found.items():
        colours = ["green" if h == hashes[0] else "bold red" for h in hashes]
        table.add_row(name, *(f"[{colour}]{h}[/]" for colour, h in zip(colours, hashes, strict=True)))
    console.print(table)
    console.print(meaning(found), soft_wrap=True)


def meaning(found: dict[str, list[str]]) -> str:
    """Return one sentence on what the table of hashes shows."""
    ours = "In the tiers invariant and portable, a row has the same bits whatever else is in its batch"
    if len(set(found[BLAS])) > 1:
        return f"{ours}; numpy's BLAS does not (red)."
    return f"{ours}; numpy's BLAS happened to on this machine, and does not promise it."


def device_lines(found: list[Found]) -> list[str]:
    """Return three lines: the backends that run here, those that cannot, and where to read more."""
    usable = [f"{f.name} ({f.caps.device})" for f in found if f.caps is not None and f.name != "null"]
    absent = [f.name for f in found if f.caps is None]
    return [
        f"Runs here:      {', '.join(usable) or 'nothing'}",
        f"Not available:  {', '.join(absent) or 'nothing'}",
        "samebits devices says why, and samebits support shows which op runs where.",
    ]


def tour() -> None:
    """Take a short tour: what neighbours do to a row's bits, the devices, and what to try next."""
    console = Console(highlight=False)
    console.print(f"samebits {__version__}, numerics version {NUMERICS_VERSION}\n")
    _print_contrast(console)
    console.print()
    for line in device_lines(list(discover())):
        console.print(escape(line), soft_wrap=True)
    console.print()
    for command, what in NEXT:
        console.print(f"  [bold]{command:<22}[/] {what}", soft_wrap=True)
