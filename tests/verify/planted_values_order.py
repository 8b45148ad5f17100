"""Ties, zeros and rows of -Inf where values are ranked or summed: argmax, top-k, softmax. See planted_values.py."""

from __future__ import annotations

import numpy as np
from planted import F, Results
from planted_base import Arguments, Defect, shown_by
from planted_scenes import call, f32, floats, rows_of

from samebits.core.numerics.elementary import exp, recip
from samebits.core.numerics.rounding import widen
from samebits.core.numerics.sums import row_sum

INF = np.inf


def spikes(width: int, *columns: int) -> np.ndarray:
    """A row of zeros with equal peaks."""
    x = np.zeros((1, width), np.float32)
    x[:, list(columns)] = 2
    return x


class ArgmaxTieAcrossTiles(Defect):
    """Merges tiles of 1,024 with >=, so that the last of equals wins."""

    ops = ("argmax",)
    witness = shown_by(call, "argmax", x=spikes(1100, 7, 1030))
    twin = shown_by(call, "argmax", x=spikes(1100, 7, 1000))

    def spoil(self, a: Arguments, results: Results) -> None:
        x = rows_of(widen(a["x"]))
        best = results[0].reshape(-1)
        for tile in range(1024, x.shape[1], 1024):
            part = x[:, tile : tile + 1024]
            wins = part.max(axis=1) == np.take_along_axis(x, best[:, None].astype(np.int64), axis=1)[:, 0]
            best[:] = np.where(wins, tile + part.argmax(axis=1), best)


class ArgmaxOfNothing(Defect):
    """Starts from index -1 and -Inf, and finds nothing greater in a row of -Inf."""

    ops = ("argmax",)
    witness = shown_by(call, "argmax", x=np.full((2, 5), -INF, np.float32))
    twin = shown_by(call, "argmax", x=f32([-INF, -1e30, -INF]))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][np.isneginf(widen(a["x"])).all(axis=-1)] = -1


class TopKTieAtTheEdge(Defect):
    """Chooses the last ones among values equal to the k-th, instead of the first."""

    ops = ("top_k",)
    witness = shown_by(call, "top_k", x=f32([3, 1, 2, 2, 2]), k=2)
    twin = shown_by(call, "top_k", x=f32([3, 1, 2, 2, 2]), k=4)

    def spoil(self, a: Arguments, results: Results) -> None:
        values, indices = (rows_of(r) for r in results)
        for row, kept, places in zip(rows_of(widen(a["x"])), values, indices, strict=True):
            ties = np.flatnonzero(row == F(kept[-1]))
            taken = np.flatnonzero(kept == kept[-1])
            places[taken] = ties[len(ties) - len(taken) :]
            kept[:] = row[places]


class MaskKeepsTies(Defect):
    """Keeps every value that equals the k-th, although more than k remain then."""

    ops = ("top_k_mask_logits",)
    witness = shown_by(call, "top_k_mask_logits", x=f32([3, 2, 2, 1]), k=2)
    twin = shown_by(call, "top_k_mask_logits", x=f32([3, 2, 2, 1]), k=3)

    def spoil(self, a: Arguments, results: Results) -> None:
        x = widen(a["x"])
        if x.shape[-1] > 0:
            lowest = np.sort(x, axis=-1)[..., -min(a["k"], x.shape[-1]), None]
            results[0][...] = np.where(x >= lowest, a["x"], results[0])


class MaskWithKBeyondRow(Defect):
    """Takes a k larger than the row for the row's width minus one."""

    ops = ("top_k_mask_logits",)
    witness = shown_by(call, "top_k_mask_logits", x=floats(2, 5), k=6)
    twin = shown_by(call, "top_k_mask_logits", x=floats(2, 5), k=5)

    def change(self, a: Arguments) -> Arguments:
        width = a["x"].shape[-1]
        return {"k": max(width - 1, 1)} if a["k"] > width else {}


class SoftmaxMaximumOfFirstTile(Defect):
    """Subtracts the maximum of the first 256 columns, so that larger values in later ones overflow."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=spikes(300, 299) * F(60))
    twin = shown_by(call, "softmax", x=spikes(300, 10) * F(60))

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        x = widen(arguments["x"])
        if {"mask", "sinks"} & set(arguments) or arguments["soft_cap"] or x.shape[-1] <= 256:
            return super().kernel(op_name, arguments)
        s = x * F(arguments["scale"])
        first = s[..., :256].max(axis=-1, keepdims=True)
        with np.errstate(all="ignore"):
            p = exp(s - np.where(np.isneginf(first), F(0), first))
            return ((p * recip(row_sum(p))[..., None]).astype(arguments["x"].dtype),)


class SoftmaxFromMinus10000(Defect):
    """Starts the search for the maximum at -10,000."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=f32([-20000, -20001]))
    twin = shown_by(call, "softmax", x=f32([-9000, -9001]))

    def spoil(self, a: Arguments, results: Results) -> None:
        if not a["soft_cap"] and "sinks" not in a:
            s = np.where(a.get("mask", True), widen(a["x"]) * F(a["scale"]), F(-INF))
            results[0][s.max(axis=-1, initial=-INF) < -10087] = 0


class MaskedSoftmaxIsUniform(Defect):
    """Masks with a large negative number: a row with nothing left becomes uniform."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=floats(2, 4), mask=np.array([[True] * 4, [False] * 4]))
    twin = shown_by(call, "softmax", x=floats(2, 4), mask=np.array([[True] * 4, [False] * 3 + [True]]))

    def spoil(self, a: Arguments, results: Results) -> None:
        if "mask" in a and "sinks" not in a and results[0].size:
            nothing = ~np.broadcast_to(a["mask"], results[0].shape).any(axis=-1)
            results[0][nothing] = 1 / results[0].shape[-1]
