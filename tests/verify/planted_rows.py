"""Every row has operands of its own: defects that take another row's. Sampling is in planted_rows_sampling.py."""

from __future__ import annotations

import numpy as np
from planted import Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import append, call, f32, floats, ints, rotary, rows_of

from samebits.ops.rope import rope_table


class SinkOfFirstRow(Defect):
    """Uses the first row's sink for every row of a softmax."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=floats(3, 8), sinks=f32(0, 1, 2))
    twin = shown_by(call, "softmax", x=floats(3, 8), sinks=f32(1, 1, 1))

    def change(self, a: Arguments) -> Arguments:
        return {"sinks": np.full_like(a["sinks"], a["sinks"].ravel()[0])} if "sinks" in a and a["sinks"].size else {}


class OperandRowsWrap(Defect):
    """Takes the row number of the right operand modulo 16, the rows of a tile."""

    ops = ("add", "mul")
    witness = shown_by(call, "add", x=floats(17, 4), y=floats(17, 4, seed=1))
    twin = shown_by(call, "add", x=floats(17, 4), y=floats(4, seed=1))

    def change(self, a: Arguments) -> Arguments:
        y = a["y"]
        if y.ndim < 2 or not y.size:
            return {}
        rows = rows_of(y)
        return {"y": rows[np.arange(len(rows)) % 16].reshape(y.shape)}


class ConsecutivePositions(Defect):
    """Loads the first position of a tile of 16 tokens and takes the others to follow one by one."""

    ops = ("rope",)
    witness = shown_by(rotary, [5, 9, 10])
    twin = shown_by(rotary, [8, 9, 10])

    def change(self, a: Arguments) -> Arguments:
        t = np.arange(len(a["pos_ids"]))
        counted_on = a["pos_ids"][t // 16 * 16] + t % 16
        return {"pos_ids": np.minimum(counted_on, len(a["table"]) - 1).astype(np.int32)}


class CachePositionsForRope(Defect):
    """Rotates a key by its position in the cache instead of by its position id."""

    ops = ("rope_and_append", "rope_both_and_append")
    witness = shown_by(append, [4], op_name="rope_and_append", pos_ids=ints(9), table=rope_table(16, 8))
    twin = shown_by(append, [4], op_name="rope_and_append", pos_ids=ints(4), table=rope_table(16, 8))

    def change(self, a: Arguments) -> Arguments:
        return {"pos_ids": np.minimum(a["positions"], len(a["table"]) - 1).astype(np.int32)}


def segments(lengths: list[int], groups: list[int]) -> Scene:
    """grouped_gemm over three matrices."""
    indptr = np.cumsum([0, *lengths]).astype(np.int32)
    x, weight = floats(sum(lengths), 8), floats(3, 4, 8, seed=1)
    return call("grouped_gemm", x=x, weight=weight, seg_indptr=indptr, weight_indices=ints(*groups))


class GroupSeenBefore(Defect):
    """Loads a group's weights once: a later segment of the group uses those of the segment before it."""

    ops = ("grouped_gemm",)
    witness = shown_by(segments, [1, 2, 1], [1, 2, 1])
    twin = shown_by(segments, [1, 2, 1], [2, 1, 0])

    def change(self, a: Arguments) -> Arguments:
        given = a.get("weight_indices")
        if given is None:
            return {}
        before = [s > 0 and g in given[: s - 1] and g != given[s - 1] for s, g in enumerate(given)]
        return {"weight_indices": np.where(before, np.roll(given, 1), given).astype(np.int32)}


class HeadsInTiles(Defect):
    """Takes the head number modulo 16: heads from the 17th on use the matrices of the first ones."""

    ops = ("head_gemm",)
    witness = shown_by(call, "head_gemm", x=floats(2, 17, 8), weight=floats(17, 4, 8, seed=1))
    twin = shown_by(call, "head_gemm", x=floats(2, 16, 8), weight=floats(16, 4, 8, seed=1))

    def change(self, a: Arguments) -> Arguments:
        return {"weight": a["weight"][np.arange(a["weight"].shape[0]) % 16]}


class ScaleOfLaterRows(Defect):
    """Stores the scales one row late from the ninth row on."""

    ops = ("quantize_q8",)
    witness = shown_by(call, "quantize_q8", x=floats(9, 32))
    twin = shown_by(call, "quantize_q8", x=floats(8, 32))

    def spoil(self, a: Arguments, results: Results) -> None:
        scales = rows_of(results[1])
        scales[8:] = scales[7:-1].copy() if len(scales) > 8 else 0
