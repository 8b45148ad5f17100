"""One run after another: defects in the sizes, outputs and scratch of the run before. See planted_runs.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from planted import F, Results, stored
from planted_attention import table_of
from planted_base import Arguments, Defect, DefectiveExecutable, Scene, shown_by
from planted_runs import twice
from planted_scenes import attention, call, floats, ints, repeated, rows_of

from samebits.core.shapes import Sym, TensorSpec
from samebits.ops.build import OpBuilder


def batches(*sizes: int) -> Scene:
    """rms_norm of batches of so many rows, all different."""
    b = OpBuilder()
    graph = b.finish(b.rms_norm(b.input("x", TensorSpec((Sym("T", 64), 4), "f32"))))
    return Scene(graph, tuple({"x": floats(n, 4, seed=i)} for i, n in enumerate(sizes)))


class FirstSizesKept(Defect):
    """Keeps the number of rows of the first run: further rows of a larger batch are not computed."""

    ops = ("rms_norm", "silu_and_mul", "add", "mul")
    witness = shown_by(batches, 2, 3)
    twin = shown_by(batches, 3, 2)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results = run.kernel(number, arguments)
        rows = rows_of(results[0])
        rows[run.kept.setdefault(number, len(rows)) :] = 0
        return results


class SmallerBatchIsOld(Defect):
    """Answers a smaller batch from the rows of the one before, as if it were its beginning."""

    ops = ("rms_norm",)
    witness = shown_by(batches, 3, 2)
    twin = shown_by(batches, 2, 3, 3)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        (y,) = run.kernel(number, arguments)
        before = run.kept.get(number)
        run.kept[number] = y.copy()
        stale = before is not None and before.ndim == y.ndim == 2 and len(before) > len(y)
        return (before[: len(y)].copy() if stale else y,)


class PaddedRowsOfTheRunBefore(Defect):
    """Computes 8 rows at a time in memory it never clears: the last row of a part-filled tile is the earlier run's."""

    ops = ("rms_norm", "layer_norm")
    witness = shown_by(batches, 8, 5)
    twin = shown_by(batches, 8, 8)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        (y,) = run.kernel(number, arguments)
        before = run.kept.get(number)
        run.kept[number] = y.copy()
        if before is not None and before.shape[1:] == y.shape[1:] and len(before) > len(y) and len(y) % 8:
            y[-1] = before[len(y) - 1]
        return (y,)


class OutputAssumedZero(Defect):
    """Adds the parts of a sum over more than 512 elements to the output, which it takes to be zero."""

    ops = ("gemm",)
    witness = shown_by(lambda: repeated(call("gemm", 0.0, x=floats(1, 513), weight=floats(2, 513)), {}))
    twin = shown_by(lambda: repeated(call("gemm", 0.0, x=floats(1, 512), weight=floats(2, 512)), {}))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        (y,) = run.kernel(number, arguments)
        target: Any = run.bound.get(run.node(number).outputs[0].name)
        with np.errstate(all="ignore"):
            return (y if target is None or arguments["x"].shape[1] <= 512 else y + target,)


class MaximaNotCleared(Defect):
    """Keeps the best value of a row in memory that only a larger one replaces, and clears it once."""

    ops = ("argmax",)
    witness = shown_by(twice, "argmax", {"x": floats(2, 9)}, x=floats(2, 9, seed=1, size=0.1))
    twin = shown_by(twice, "argmax", {"x": floats(2, 9, size=0.1)}, x=np.eye(2, 9, 4, dtype=np.float32))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        (indices,) = run.kernel(number, arguments)
        best = arguments["x"].astype(F).max(axis=-1)
        value, index = run.kept.get(number, (best, indices))
        if value.shape == best.shape:
            indices = np.where(value > best, index, indices)
            best = np.maximum(value, best)
        run.kept[number] = best, indices.copy()
        return (indices,)


class SplitsOfALongerRun(Defect):
    """Merges the partial sums of as many splits of 64 positions as the longest run so far had."""

    ops = ("paged_attention",)
    witness = shown_by(
        lambda: repeated(attention((100,), page_size=128), {"kv_last_page_len": ints(60), "q": floats(1, 1, 8, seed=7)})
    )
    twin = shown_by(
        lambda: repeated(attention((60,), page_size=128), {"kv_last_page_len": ints(50), "q": floats(1, 1, 8, seed=7)})
    )

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results = run.kernel(number, arguments)
        lengths = table_of({**arguments, **run.node(number).attrs}).lengths
        splits = int(lengths.max(initial=0)) // 64
        most, out = run.kept.get(number, (0, None))
        if splits < most and out.shape == results[0].shape:
            results[0][...] = ((results[0].astype(F) + out) * F(0.5)).astype(results[0].dtype)
        else:
            run.kept[number] = splits, results[0].astype(F)
        return results


class KernelsOfOtherAttributes(Defect):
    """Finds compiled kernels by op, sizes and formats: one compiled for other attributes is taken for the call's."""

    ops = ("gated_delta_rule", "gated_rms_norm", "softmax", "paged_attention")
    witness = shown_by(lambda: [call("softmax", x=floats(2, 8), scale=scale) for scale in (1.0, 0.3)])
    twin = shown_by(lambda: [call("softmax", x=floats(2, 8), scale=1.0) for _ in range(2)])

    def __init__(self) -> None:
        super().__init__()
        self.compiled: dict[Any, Arguments] = {}

    def change(self, a: Arguments) -> Arguments:
        is_tensor = {name: hasattr(value, "shape") for name, value in a.items()}
        sizes = tuple((n, x.shape, str(stored(x).dtype)) for n, x in sorted(a.items()) if is_tensor[n])
        return self.compiled.setdefault(sizes, {n: x for n, x in a.items() if not is_tensor[n] and x is not None})
