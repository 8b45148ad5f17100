"""Sizes where heads and columns are moved: defects beyond a bound, and beside a lane's edge. See planted_sizes.py."""

from __future__ import annotations

import numpy as np
from planted import Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import append, call, floats, ints

from samebits.ops.rope import rope_table


class ConcatByWholeLanes(Defect):
    """Starts the right columns at a multiple of 4: one column too far when the left width is one less."""

    ops = ("concat_columns",)
    witness = shown_by(call, "concat_columns", a=floats(2, 3), b=floats(2, 4, seed=1))
    twin = shown_by(call, "concat_columns", a=floats(2, 4), b=floats(2, 3, seed=1))

    def spoil(self, a: Arguments, results: Results) -> None:
        left = a["a"].shape[-1]
        if left % 4 == 3:
            results[0][..., left + 1 :] = results[0][..., left:-1].copy()


class MaskedIn16Bits(Defect):
    """Keeps the columns to keep in 16 bits: those from 65,536 on are masked."""

    ops = ("top_k_mask_logits",)
    witness = shown_by(call, "top_k_mask_logits", x=floats(1, 65537), k=65537)
    twin = shown_by(call, "top_k_mask_logits", x=floats(1, 65536), k=65536)

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][..., 65536:] = -np.inf


class SliceFromWholeLanes(Defect):
    """Starts at the multiple of 4 below the first column."""

    ops = ("slice_columns",)
    witness = shown_by(call, "slice_columns", x=floats(2, 12), start=5, stop=9)
    twin = shown_by(call, "slice_columns", x=floats(2, 12), start=4, stop=9)

    def change(self, a: Arguments) -> Arguments:
        off = a["start"] % 4
        return {"start": a["start"] - off, "stop": a["stop"] - off}


class OddHeadsSplit(Defect):
    """Rounds an odd head size up to find where the next head begins."""

    ops = ("split_heads",)
    witness = shown_by(call, "split_heads", x=floats(2, 9), heads=3)
    twin = shown_by(call, "split_heads", x=floats(2, 12), heads=3)

    def spoil(self, a: Arguments, results: Results) -> None:
        _, num_heads, size = results[0].shape
        columns = np.arange(num_heads)[:, None] * (size + size % 2) + np.arange(size)
        results[0][...] = a["x"][:, np.minimum(columns, num_heads * size - 1)] if size else 0


class MergedHeadsBeyond32(Defect):
    """Copies 32 heads of a token, and repeats the last of them for the heads that follow."""

    ops = ("merge_heads",)
    witness = shown_by(call, "merge_heads", x=floats(2, 33, 2))
    twin = shown_by(call, "merge_heads", x=floats(2, 32, 2))

    def change(self, a: Arguments) -> Arguments:
        return {"x": a["x"][:, np.minimum(np.arange(a["x"].shape[1]), 31)]}


class RopeHeadsBeyond32(Defect):
    """Rotates 32 heads of a token and copies the others unchanged."""

    ops = ("rope",)
    witness = shown_by(call, "rope", x=floats(1, 33, 4), pos_ids=ints(5), table=rope_table(8, 4))
    twin = shown_by(call, "rope", x=floats(1, 32, 4), pos_ids=ints(5), table=rope_table(8, 4))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][:, 32:] = a["x"][:, 32:]


def turned(num_heads: int) -> Scene:
    """rope_both_and_append of a token with so many query heads and one KV head."""
    query = {"query": floats(1, num_heads, 8), "pos_ids": ints(4), "table": rope_table(8, 8)}
    return append([4], op_name="rope_both_and_append", **query)


class QueryHeadsBeyondKvHeads(Defect):
    """Rotates as many query heads as there are KV heads, and no more."""

    ops = ("rope_both_and_append",)
    witness = shown_by(turned, 2)
    twin = shown_by(turned, 1)

    def spoil(self, a: Arguments, results: Results) -> None:
        num_kv_heads = a["key"].shape[1]
        results[0][:, num_kv_heads:] = a["query"][:, num_kv_heads:]


def added(width: int) -> Scene:
    rows = {"x": floats(1, width), "residual": floats(1, width, seed=1), "weight": floats(width, seed=2)}
    return call("add_rms_norm_q8", **rows)


class ResidualBeyond4096(Defect):
    """Writes back only the 4,096 elements of the new residual that fit its registers."""

    ops = ("add_rms_norm_q8", "fused_add_rms_norm")
    witness = shown_by(added, 4128)
    twin = shown_by(added, 4096)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        beyond = arguments["residual"][..., 4096:].copy()
        results = super().kernel(op_name, arguments)
        results[-1][..., 4096:] = beyond
        return results
