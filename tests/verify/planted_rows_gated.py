"""Rows with a gate, and norms of parts of a row."""

from __future__ import annotations

import numpy as np
from planted import Results
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


class GroupsByShift(Defect):
    """Finds a group's width by a shift, so that three groups are taken for two."""

    ops = ("gated_rms_norm",)
    witness = shown_by(call, "gated_rms_norm", x=floats(2, 12), gate=floats(2, 12), weight=floats(12), groups=3)
    twin = shown_by(call, "gated_rms_norm", x=floats(2, 12), gate=floats(2, 12), weight=floats(12), groups=2)

    def change(self, a: Arguments) -> Arguments:
        power = 1 << (a["groups"].bit_length() - 1)
        return {"groups": power} if a["x"].shape[-1] % power == 0 else {}


class GatedRowsBeyond8192(Defect):
    """Has registers for 8,192 columns of a row, and stores zeros beyond."""

    ops = ("gated_rms_norm",)
    witness = shown_by(call, "gated_rms_norm", x=floats(1, 8193), gate=floats(1, 8193), weight=floats(8193))
    twin = shown_by(call, "gated_rms_norm", x=floats(1, 8192), gate=floats(1, 8192), weight=floats(8192))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][..., 8192:] = 0


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
