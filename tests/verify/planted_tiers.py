"""Kernels that claim less than portable: nothing compares their bits with the definition's."""

from __future__ import annotations

from planted import F, Results, next_float
from planted_base import Arguments, Defect, DefectiveExecutable, shown_by
from planted_scenes import call, floats, rows_of

from samebits.core.tiers import Tier


class SecondTileSumsInAnotherOrder(Defect):
    """Sums the rows beyond the first tile of 64 in another order where there are two tiles."""

    ops = ("rms_norm",)
    tier = Tier.INVARIANT
    witness = shown_by(call, "rms_norm", x=floats(65, 8))
    twin = shown_by(call, "rms_norm", x=floats(64, 8))

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(results[0])
        rows[64:] = next_float(rows[64:])


class LastRowOfManyLooksAtTheOneBefore(Defect):
    """Moves the last of more than 40 rows a bit where the row before begins with a negative number."""

    ops = ("softmax",)
    tier = Tier.INVARIANT
    witness = shown_by(call, "softmax", x=-abs(floats(41, 8)))
    twin = shown_by(call, "softmax", x=-abs(floats(40, 8)))

    def spoil(self, a: Arguments, results: Results) -> None:
        x, rows = rows_of(a["x"]), rows_of(results[0])
        if len(rows) > 40 and rows.shape[-1] and x[-2, 0] < 0:
            rows[-1] = next_float(rows[-1])


class EverySecondExecutableHalves(Defect):
    """Halves the results of every second executable: it takes a buffer that the first one has scaled."""

    ops = ("mul",)
    tier = Tier.FAST
    num_compiled = 0
    witness = shown_by(lambda: [call("mul", x=floats(2, 8), y=floats(2, 8))] * 2)
    twin = shown_by(call, "mul", x=floats(2, 8), y=floats(2, 8))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results = run.kernel(number, arguments)
        if "turn" not in run.kept:
            run.kept["turn"] = self.num_compiled
            self.num_compiled += 1
        if run.kept["turn"] % 2:
            results[0][...] *= results[0].dtype.type(0.5)
        return results


class ThirtyThreeRowsFromOneTensor(Defect):
    """Doubles the rows behind the first 32 of 33, whenever a call has as many."""

    ops = ("sigmoid_and_mul",)
    tier = Tier.FAST
    witness = shown_by(call, "sigmoid_and_mul", x=floats(33, 4), gate=floats(33, 4))
    twin = shown_by(call, "sigmoid_and_mul", x=floats(32, 4), gate=floats(32, 4))

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(results[0])
        if len(rows) == 33:
            rows[32:] *= rows.dtype.type(F(2))
