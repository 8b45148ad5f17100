"""`samebits tour`: devices, one op at each tier, the support matrix. What `make run` shows."""

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


def _hash(x: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()[:12]


def _one_op_at_each_tier(console: Console) -> None:
    stream = Stream("tour")
    x = stream.child("x").normal((max(BATCHES), 576))
    weight = Q4_1.pack(stream.child("w").normal((64, 576), 0.05))
    table = Table(title="gemm, Q4_1 weights: SHA-256 of row 0's bits, alone and in a batch")
    for column in ("numerics", *(f"batch {b}" for b in BATCHES)):
        table.add_column(column)
    for tier in (Tier.FAST, Tier.INVARIANT, Tier.PORTABLE):
        hashes = [_hash(F.gemm(x[:b], weight, numerics=tier.label)[0]) for b in BATCHES]
        table.add_row(tier.label, *hashes)
    console.print(table)


def tour() -> None:
    """Take a short tour: the devices, one op at each tier, the support matrix."""
    console = Console()
    console.print(f"samebits {__version__}, numerics version {NUMERICS_VERSION}\n")
    print_devices(console)
    console.print()
    _one_op_at_each_tier(console)
    console.print()
    print_matrix(console, list(OPS), list(discover()))
