"""Teams of threads: defects that only show in more threads than a few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from planted import Results
from planted_base import Arguments, Defect, DefectiveExecutable, Scene, shown_by
from planted_graphs import made_by, turned
from planted_scenes import call, floats, rows_of

from samebits.core.format import copy_tensor


class TeamOfEight(Defect):
    """Has places for the shares of seven threads: with more, the last row belongs to nobody."""

    ops = ("rms_norm", "l2_norm")
    witness = shown_by(call, "rms_norm", threads=8, x=floats(4, 8))
    twin = shown_by(call, "rms_norm", threads=7, x=floats(4, 8))

    def spoil(self, a: Arguments, results: Results) -> None:
        if self.threads > 7:
            rows_of(results[0])[-1:] = 0


class MoreThreadsThanRows(Defect):
    """Rounds the rows of a share down, which leaves none where there are more threads than rows."""

    ops = ("scale", "add", "cast")
    witness = shown_by(call, "scale", threads=8, x=floats(7, 8))
    twin = shown_by(call, "scale", threads=8, x=floats(8, 8))

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(results[0])
        if 1 < len(rows) < self.threads:
            rows[1:] = 0


def turned_by(num_threads: int) -> Scene:
    return replace(turned(5), threads=(num_threads,))


class BarrierOfEight(Defect):
    """Counts eight threads at a barrier: with more, a table that a node makes is read as the run before left it."""

    ops = ("rope",)
    witness = shown_by(turned_by, 16)
    twin = shown_by(turned_by, 8)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        name, table = run.node(number).inputs["table"].name, arguments["table"]
        if made_by(run, name) is None or self.threads <= 8:
            return run.kernel(number, arguments)
        before = run.kept.get(name, table[:0])
        run.kept[name] = copy_tensor(table)
        late = min(len(before), len(table))
        return run.kernel(number, {**arguments, "table": np.concatenate([before[:late], table[late:]])})
