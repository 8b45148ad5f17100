"""Sizes and indices: defects beyond a bound that a kernel has, and in the tail that a tile leaves."""

from __future__ import annotations

import numpy as np
from planted import F, Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import blocks, call, floats, ints, product, rotary, rows_of


def one_hot(num_columns: int, column: int, num_rows: int = 1) -> np.ndarray:
    """Zeros with a 1 in one column."""
    x = np.zeros((num_rows, num_columns), np.float32)
    x[:, column] = 1
    return x


class PositionsInOneByte(Defect):
    """Keeps a token's position in one byte."""

    ops = ("rope", "rope_and_append", "rope_both_and_append")
    witness = shown_by(rotary, [7, 256])
    twin = shown_by(rotary, [7, 255])

    def change(self, a: Arguments) -> Arguments:
        return {"pos_ids": a["pos_ids"] & 255}


class AngleTableOf4096(Defect):
    """Clamps positions to 4,095, the end of a table that was made for a smaller context."""

    ops = ("rope", "rope_and_append", "rope_both_and_append")
    witness = shown_by(rotary, [4096], num_positions=4097)
    twin = shown_by(rotary, [4095], num_positions=4097)

    def change(self, a: Arguments) -> Arguments:
        return {"pos_ids": np.minimum(a["pos_ids"], 4095)}


class RowsBeyond33(Defect):
    """Loses the last column of x in rows beyond the first 33."""

    ops = ("gemm",)
    witness = shown_by(product, 34, 3, 64)
    twin = shown_by(product, 33, 3, 64)

    def change(self, a: Arguments) -> Arguments:
        x = a["x"].copy()
        x[33:, -1:] = 0
        return {"x": x}


class ColumnsIn14Bits(Defect):
    """Keeps an output's number in 14 bits: from output 16,384 on, the weights are read from the first row again."""

    ops = ("gemm", "gemm_q8")
    witness = shown_by(product, 1, 16385, 32, "q8_0")
    twin = shown_by(product, 1, 16384, 32, "q8_0")

    def change(self, a: Arguments) -> Arguments:
        num_rows = a["weight"].shape[0]
        return {"weight": a["weight"][np.arange(num_rows) & 16383]} if num_rows > 16384 else {}


class DepthBeyond8192(Defect):
    """Keeps a row of x in shared memory of 8,192 values, and ignores what lies beyond."""

    ops = ("gemm",)
    witness = shown_by(product, 2, 2, 8224, "q4_0")
    twin = shown_by(product, 2, 2, 8192, "q4_0")

    def change(self, a: Arguments) -> Arguments:
        return {"x": np.where(np.arange(a["x"].shape[1]) < 8192, a["x"], a["x"].dtype.type(0))}


class TailWithoutBias(Defect):
    """Adds the bias in whole tiles of 16 outputs; the tail's path has none."""

    ops = ("gemm", "gemm_q8")
    witness = shown_by(product, 2, 20, 32, "q4_1", bias=floats(20))
    twin = shown_by(product, 2, 32, 32, "q4_1", bias=floats(32))

    def change(self, a: Arguments) -> Arguments:
        if "bias" not in a:
            return {}
        whole = np.arange(len(a["bias"])) < len(a["bias"]) // 16 * 16
        return {"bias": np.where(whole, a["bias"], a["bias"].dtype.type(0))}


class LoneColumnOfTail(Defect):
    """Stores the output before in place of the last one when exactly one remains after tiles of 64."""

    ops = ("gemm", "gemm_q8", "grouped_gemm")
    witness = shown_by(product, 2, 65, 32)
    twin = shown_by(product, 2, 66, 32)

    def spoil(self, a: Arguments, results: Results) -> None:
        y = results[0]
        if y.shape[1] > 64 and y.shape[1] % 64 == 1:
            y[:, -1] = y[:, -2]


class LongSegmentsCut(Defect):
    """Computes only the first 64 rows of each segment."""

    ops = ("grouped_gemm",)
    witness = shown_by(call, "grouped_gemm", x=floats(65, 4), weight=floats(1, 2, 4), seg_indptr=ints(0, 65))
    twin = shown_by(call, "grouped_gemm", x=floats(65, 4), weight=floats(2, 2, 4), seg_indptr=ints(0, 1, 65))

    def spoil(self, a: Arguments, results: Results) -> None:
        for start, stop in zip(a["seg_indptr"][:-1], a["seg_indptr"][1:], strict=True):
            results[0][start + 64 : max(stop, start + 64)] = 0


def fused_product(half: int) -> Scene:
    return call("gemm_silu_q8", **blocks(2, 32), weight=floats(2 * half, 32, seed=1, fmt="q8_0"))


class UpRowsFromWholeTiles(Defect):
    """Rounds the number of gate rows up to a multiple of 64 to find where the up projection begins."""

    ops = ("gemm_silu_q8",)
    witness = shown_by(fused_product, 96)
    twin = shown_by(fused_product, 128)

    def change(self, a: Arguments) -> Arguments:
        rows = np.arange(a["weight"].shape[0])
        half = len(rows) // 2
        shifted = np.minimum(rows + (-half) % 64, len(rows) - 1)
        return {"weight": a["weight"][np.where(rows < half, rows, shifted)]}


class NormRowsBeyond4096(Defect):
    """Keeps a row's number in 12 bits, which wrap at 4,096."""

    ops = ("rms_norm", "layer_norm")
    witness = shown_by(call, "rms_norm", x=floats(4097, 2))
    twin = shown_by(call, "rms_norm", x=floats(4096, 2))

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(results[0])
        rows[:] = rows[np.arange(len(rows)) & 4095]


class NormWidthIn16Lanes(Defect):
    """Does not multiply by the weight in the columns after the last whole group of 16."""

    ops = ("rms_norm", "fused_add_rms_norm")
    witness = shown_by(call, "rms_norm", x=floats(2, 24), weight=floats(24, seed=1))
    twin = shown_by(call, "rms_norm", x=floats(2, 32), weight=floats(32, seed=1))

    def change(self, a: Arguments) -> Arguments:
        if "weight" not in a:
            return {}
        whole = np.arange(len(a["weight"])) < len(a["weight"]) // 16 * 16
        return {"weight": np.where(whole, a["weight"], a["weight"].dtype.type(1))}


class GridOf65535(Defect):
    """Gives every row a block of the grid's second dimension, which has at most 65,535."""

    ops = ("silu_and_mul", "gelu_and_mul")
    witness = shown_by(call, "silu_and_mul", x=floats(65536, 2))
    twin = shown_by(call, "silu_and_mul", x=floats(65535, 2))

    def spoil(self, a: Arguments, results: Results) -> None:
        rows_of(results[0])[65535:] = 0


class ThirdAxisForgotten(Defect):
    """Scales the rows of the first leading axis alone, and copies those of a second one."""

    ops = ("scale",)
    witness = shown_by(call, "scale", x=floats(2, 3, 4), factor=3.0)
    twin = shown_by(call, "scale", x=floats(6, 4), factor=3.0)

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].ndim > 2:
            results[0][:, 1:] = a["x"][:, 1:]


def looked_up(num_rows: int, width: int, *ids: int) -> Scene:
    """embedding in a table of zeros but for the ends of every row."""
    table = np.zeros((num_rows, width), np.float16)
    table[:, 0], table[:, -1] = np.arange(num_rows) % 1999, 1
    return call("embedding", table=table, ids=ints(*ids))


class EmbeddingIdsIn15Bits(Defect):
    """Keeps a token id in a signed 16-bit number."""

    ops = ("embedding",)
    witness = shown_by(looked_up, 32769, 2, 5, 32768)
    twin = shown_by(looked_up, 32769, 2, 5, 32767)

    def change(self, a: Arguments) -> Arguments:
        return {"ids": a["ids"] & 0x7FFF}


class EmbeddingOffsetWraps(Defect):
    """Computes id * width in a number too small for a large table (22 bits here, 31 in life)."""

    ops = ("embedding",)
    witness = shown_by(looked_up, 4097, 1024, 4096)
    twin = shown_by(looked_up, 4097, 1024, 4095)

    def change(self, a: Arguments) -> Arguments:
        width = max(a["table"].shape[1], 1)
        return {"ids": ((a["ids"].astype(np.int64) * width % 2**22) // width).astype(np.int32)}


class ArgmaxIn16Bits(Defect):
    """Stores the best index in 16 bits beside its value."""

    ops = ("argmax", "top_k")
    witness = shown_by(call, "argmax", x=one_hot(65537, 65536))
    twin = shown_by(call, "argmax", x=one_hot(65537, 65535))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[-1][...] &= 0xFFFF


class TopKOf128(Defect):
    """Merges lists of 128 candidates: only the first 128 results are in order."""

    ops = ("top_k",)
    witness = shown_by(call, "top_k", x=floats(1, 200), k=140)
    twin = shown_by(call, "top_k", x=floats(1, 200), k=128)

    def spoil(self, a: Arguments, results: Results) -> None:
        for x in results:
            x[..., 128:] = x[..., 128:][..., ::-1].copy()


class SoftmaxSumOf32768(Defect):
    """Sums the exponentials of the first 32,768 columns alone."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=np.zeros((1, 32800), np.float32))
    twin = shown_by(call, "softmax", x=np.zeros((1, 32768), np.float32))

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(results[0])
        seen = F(1) - rows[:, 32768:].astype(F).sum(axis=1, keepdims=True)
        rows[:] = rows / np.where(seen > 0, seen, F(1))
