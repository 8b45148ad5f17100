"""`samebits tour`, which `make run` shows: devices, what neighbours do to a row's bits, and where two ops run."""

from __future__ import annotations

import hashlib

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits import NUMERICS_VERSION, __version__
from samebits.api import functional as F
from samebits.backends.discovery import discover
from samebits.cli.devices import print_devices
from samebits.cli.support import print_matrix
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.formats import Q4_1
from samebits.ops import OPS

BATCHES = (1, 3, 8, 33)
BLAS = "numpy BLAS, F32"


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
    if len(set(found[BLAS])) > 1:
        said = "BLAS sums a row in another order when it has neighbours, so its bits change."
    else:
        said = "BLAS kept the bits of these shapes on this machine, which it does not promise."
    console.print(f"{said}\nOurs come from one order, which docs/numerics.md states.")


def tour() -> None:
    """Take a short tour: the devices, what neighbours do to a row's bits, and where two of the ops run."""
    console = Console()
    console.print(f"samebits {__version__}, numerics version {NUMERICS_VERSION}\n")
    print_devices(console)
    console.print()
    _print_contrast(console)
    console.print()
    shown = [next(op for op in OPS if op.weights), next(op for op in OPS if op.caches)]
    print_matrix(console, shown, list(discover()))
    console.print(f"These are {len(shown)} of {len(list(OPS))} ops; samebits support shows all of them.")
