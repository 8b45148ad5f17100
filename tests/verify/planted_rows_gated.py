"""Rows with a gate, and norms of parts of a row."""

from __future__ import annotations

import numpy as np
from planted_base import Arguments, Defect, shown_by
from planted_scenes import call, floats, rows_of


class EpsilonTwice(Defect):
    """Adds eps to the sum of each half of a row, so twice in all."""

    ops = ("l2_norm",)
    witness = shown_by(call, "l2_norm", x=floats(2, 8, size=0.01))
    twin = shown_by(call, "l2_norm", x=floats(2, 8, size=1e6))

    def change(self, a: Arguments) -> Arguments:
        return {"eps": 2 * a["eps"]}


class OneGroupForAll(Defect):
    """Normalizes a whole row at once although the call asks for groups of it."""

    ops = ("gated_rms_norm",)
    witness = shown_by(call, "gated_rms_norm", x=floats(2, 8), gate=floats(2, 8), weight=floats(8), groups=2)
    twin = shown_by(call, "gated_rms_norm", x=floats(2, 8), gate=floats(2, 8), weight=floats(8))

    def change(self, a: Arguments) -> Arguments:
        return {"groups": 1}


class GateOfFirstRow(Defect):
    """Uses the first row's gate for every row."""

    ops = ("sigmoid_and_mul",)
    witness = shown_by(call, "sigmoid_and_mul", x=floats(3, 8), gate=floats(3, 8, seed=1))
    twin = shown_by(call, "sigmoid_and_mul", x=floats(1, 8), gate=floats(1, 8, seed=1))

    def change(self, a: Arguments) -> Arguments:
        gate = a["gate"]
        return (
            {"gate": np.broadcast_to(rows_of(gate)[:1], rows_of(gate).shape).reshape(gate.shape)} if gate.size else {}
        )
