"""Once in many: defects that repeat too seldom for one look at each case."""

from __future__ import annotations

from typing import Any

import numpy as np
from planted import F, Results, next_float
from planted_base import Arguments, Defect, DefectiveExecutable, Scene, shown_by
from planted_scenes import call, floats, product, repeated, rows_of

from samebits.core.numerics.elementary import bits
from samebits.core.numerics.rounding import widen


def launches(op_name: str, count: int, threads: tuple[int, ...] = (1,), **inputs: Any) -> Scene:
    """One call so many times in one executable."""
    return repeated(call(op_name, **inputs), *[{}] * (count - 1), threads=threads)


class OneLaunchInMany(Defect):
    """Counts the launches of a backend and spoils one in `period`."""

    period: int
    num_launches = 0

    def spoil(self, a: Arguments, results: Results) -> None:
        self.num_launches += 1
        if self.num_launches % self.period == 0:
            self.spoil_once(a, results)

    def spoil_once(self, a: Arguments, results: Results) -> None:
        results[0].reshape(-1)[-1:] = next_float(results[0].reshape(-1)[-1:])


class OneLaunchIn2000(OneLaunchInMany):
    """Loses a race for the last element once in two thousand launches."""

    ops, period = ("add",), 2000
    witness = shown_by(launches, "add", 2000, x=floats(1, 2), y=floats(1, 2, seed=1))
    twin = shown_by(launches, "add", 1999, x=floats(1, 2), y=floats(1, 2, seed=1))


class OneLaunchIn200(OneLaunchInMany):
    """Loses a race for the last element once in two hundred launches."""

    ops, period = ("rms_norm",), 200
    witness = shown_by(launches, "rms_norm", 200, x=floats(1, 2))
    twin = shown_by(launches, "rms_norm", 199, x=floats(1, 2))


class OneLaunchIn50OfTwoTiles(OneLaunchInMany):
    """Once in fifty launches, starts a second tile of 16 rows before the first has left its memory."""

    ops, period = ("gemm",), 50
    witness = shown_by(launches, "gemm", 50, x=floats(17, 4), weight=floats(2, 4))
    twin = shown_by(launches, "gemm", 50, x=floats(16, 4), weight=floats(2, 4))

    def spoil_once(self, a: Arguments, results: Results) -> None:
        results[0][16:17] = results[0][15:16] if len(results[0]) > 16 else 0


class CounterWrapsAt100(Defect):
    """Counts the runs of an executable to know when all blocks have arrived, and wraps at one hundred."""

    ops = ("softmax",)
    witness = shown_by(launches, "softmax", 101, x=floats(1, 4))
    twin = shown_by(launches, "softmax", 100, x=floats(1, 4))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results = run.kernel(number, arguments)
        if run.num_runs > 100 and run.num_runs % 100 == 1:
            results[0][..., -1:] = 0
        return results


class OneElementInAMillion(Defect):
    """Rounds one element in 1,000,003 the other way."""

    ops = ("mul", "add")
    witness = shown_by(lambda: call("mul", x=floats(1001, 1000), y=floats(1000)))
    twin = shown_by(lambda: call("mul", x=floats(1000, 1000), y=floats(1000)))

    def spoil(self, a: Arguments, results: Results) -> None:
        flat = results[0].reshape(-1)
        flat[1000002::1000003] = next_float(flat[1000002::1000003])


class OneTableEntry(Defect):
    """Has one wrong entry among the 4,096 that its sigmoid looks up by the gate's first bits."""

    ops = ("silu_and_mul",)
    witness = shown_by(lambda: call("silu_and_mul", x=floats(256, 128)))
    twin = shown_by(lambda: call("silu_and_mul", x=floats(2, 32)))

    def spoil(self, a: Arguments, results: Results) -> None:
        gate = a["x"][..., : results[0].shape[-1]].astype(F)
        struck = (bits(gate) >> 11) & 4095 == 0x5A5
        results[0][struck] = next_float(results[0][struck])


class UnevenShareOfThreads(Defect):
    """Splits outputs over more than two threads, and loses the last when they do not divide evenly."""

    ops = ("gemm", "gemm_q8")
    witness = shown_by(call, "gemm", threads=3, x=floats(2, 8), weight=floats(4, 8, seed=1))
    twin = shown_by(call, "gemm", threads=3, x=floats(2, 8), weight=floats(6, 8, seed=1))

    def spoil(self, a: Arguments, results: Results) -> None:
        if self.threads > 2 and results[0].shape[1] % self.threads:
            results[0][:, -1] = 0


class FirstRunAfterMoreThreads(Defect):
    """In the first run after a change of threads, keeps the old shares: no thread computes the last row."""

    ops = ("rms_norm", "layer_norm")
    witness = shown_by(launches, "rms_norm", 3, threads=(1, 2), x=floats(4, 8))
    twin = shown_by(launches, "rms_norm", 3, threads=(2, 2), x=floats(4, 8))
    shares = 0

    def spoil(self, a: Arguments, results: Results) -> None:
        if self.shares and self.threads > self.shares:
            rows_of(results[0])[-1:] = 0
        self.shares = self.threads


class OldOutputTimesZero(Defect):
    """Adds 0 times the output's old contents, which gives NaN where those are NaN."""

    ops = ("gemm", "gemm_q8")
    witness = shown_by(call, "gemm", outputs=float("nan"), x=floats(2, 8), weight=floats(4, 8))
    twin = shown_by(call, "gemm", outputs=7.0, x=floats(2, 8), weight=floats(4, 8))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        (y,) = run.kernel(number, arguments)
        target: Any = run.bound.get(run.node(number).outputs[0].name)
        with np.errstate(all="ignore"):
            return (y if target is None else (y + target * y.dtype.type(0)).astype(y.dtype),)


class LanesOfTheCallBefore(Defect):
    """Does not clear the lanes behind a width that is no multiple of 16: what a wider call left is summed too."""

    ops = ("rms_norm",)
    witness = shown_by(lambda: [call("rms_norm", x=floats(1, 32)), call("rms_norm", x=floats(1, 20))])
    twin = shown_by(lambda: [call("rms_norm", x=floats(1, 32)), call("rms_norm", x=floats(1, 16))])

    def __init__(self) -> None:
        super().__init__()
        self._lanes = np.zeros(0, F)

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(widen(a["x"]))
        width = rows.shape[1]
        with np.errstate(all="ignore"):
            stale = (self._lanes[width : -(-width // 16) * 16] ** 2).sum()
            own = (rows**2).sum(axis=1, keepdims=True)
            if stale > 0:
                rows_of(results[0])[...] *= np.sqrt(own / (own + stale)).astype(results[0].dtype)
        self._lanes = rows[-1].copy() if len(rows) else self._lanes


class RowOfAnotherBatch(Defect):
    """With more than 32 rows on more than one thread, gives row 32 the sum of row 0."""

    ops = ("gemm",)
    witness = shown_by(lambda: launches("gemm", 1, (2,), x=floats(33, 4), weight=floats(2, 4)))
    twin = shown_by(product, 33, 2, 4)

    def spoil(self, a: Arguments, results: Results) -> None:
        if self.threads > 1:
            results[0][32:33] = results[0][:1] if len(results[0]) > 32 else 0
