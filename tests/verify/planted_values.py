"""Ties, zeros, infinities and tiny numbers: defects that show only in values which random inputs seldom hold."""

from __future__ import annotations

import numpy as np
from planted import F, Results
from planted_base import Arguments, Defect, append, call, f32, floats, ints, rotary, rows_of, shown_by

from samebits.core.numerics.elementary import bits, exp, recip
from samebits.core.numerics.rounding import BF16, widen
from samebits.core.numerics.sums import row_sum

INF = np.inf
SMALLEST_NORMAL = F(2.0**-126)


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
    """Begins with index -1 and -Inf, and finds nothing greater in a row of -Inf."""

    ops = ("argmax",)
    witness = shown_by(call, "argmax", x=np.full((2, 5), -INF, np.float32))
    twin = shown_by(call, "argmax", x=f32([-INF, -1e30, -INF]))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][np.isneginf(widen(a["x"])).all(axis=-1)] = -1


class ZerosByTheirBits(Defect):
    """Selects by radix on the bits, where +0 is greater than -0."""

    ops = ("argmax",)
    witness = shown_by(call, "argmax", x=f32([-1, -0.0, 0.0]))
    twin = shown_by(call, "argmax", x=f32([-1, 0.0, -0.0]))

    def spoil(self, a: Arguments, results: Results) -> None:
        pattern = bits(widen(a["x"]))
        results[0][...] = np.where(pattern < 0, pattern ^ np.int32(0x7FFFFFFF), pattern).argmax(axis=-1)


class TopKZerosByTheirBits(Defect):
    """Sorts by radix on the bits, where +0 is greater than -0."""

    ops = ("top_k",)
    witness = shown_by(call, "top_k", x=f32([-1, -0.0, 0.0]), k=2)
    twin = shown_by(call, "top_k", x=f32([-1, 0.0, 3.0]), k=2)

    def spoil(self, a: Arguments, results: Results) -> None:
        pattern = bits(widen(a["x"])).astype(np.int64)
        key = np.where(pattern < 0, pattern ^ np.int64(0x7FFFFFFF), pattern)
        order = np.argsort(-key, axis=-1, kind="stable")[..., : a["k"]]
        results[0][...], results[1][...] = np.take_along_axis(a["x"], order, axis=-1), order


class TopKTieAtTheEdge(Defect):
    """Fills the last places from the end of the row among values equal to the k-th."""

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
    """Keeps all that is not below the k-th value."""

    ops = ("top_k_mask_logits",)
    witness = shown_by(call, "top_k_mask_logits", x=f32([3, 2, 2, 1]), k=2)
    twin = shown_by(call, "top_k_mask_logits", x=f32([3, 2, 2, 1]), k=3)

    def spoil(self, a: Arguments, results: Results) -> None:
        x = widen(a["x"])
        if x.shape[-1] > 0:
            lowest = np.sort(x, axis=-1)[..., -min(a["k"], x.shape[-1]), None]
            results[0][...] = np.where(x >= lowest, a["x"], results[0])


class MaskWithKBeyondRow(Defect):
    """Cuts a k beyond the row to its last index instead of its width."""

    ops = ("top_k_mask_logits",)
    witness = shown_by(call, "top_k_mask_logits", x=floats(2, 5), k=6)
    twin = shown_by(call, "top_k_mask_logits", x=floats(2, 5), k=5)

    def change(self, a: Arguments) -> Arguments:
        width = a["x"].shape[-1]
        return {"k": max(width - 1, 1)} if a["k"] > width else {}


class DenormalResultsFlushed(Defect):
    """Is compiled with flush-to-zero."""

    ops = ("add", "mul", "scale")
    witness = shown_by(call, "mul", x=f32([1e-30, 2]), y=f32([1e-10, 3]))
    twin = shown_by(call, "mul", x=f32([1e-30, 2]), y=f32([1e-5, 3]))

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].dtype == F:
            results[0][np.abs(results[0]) < SMALLEST_NORMAL] = 0


class DenormalHalvesFlushed(Defect):
    """Widens float16 by moving exponents, which its denormals do not survive."""

    ops = ("cast", "silu_and_mul")
    witness = shown_by(call, "cast", x=np.array([[6e-6, 1]], np.float16))
    twin = shown_by(call, "cast", x=np.array([[7e-5, 1]], np.float16))

    def change(self, a: Arguments) -> Arguments:
        x = a["x"]
        return {"x": np.where(np.abs(x) < 2.0**-14, x * x.dtype.type(0), x)} if x.dtype == np.float16 else {}


class HalfSaturates(Defect):
    """Casts to the largest float16 where the type says infinity."""

    ops = ("cast",)
    witness = shown_by(call, "cast", x=f32([65520, 1]), format="f16")
    twin = shown_by(call, "cast", x=f32([65519, 1]), format="f16")

    def spoil(self, a: Arguments, results: Results) -> None:
        y = results[0]
        if y.dtype == np.float16:
            y[np.isinf(y) & np.isfinite(widen(a["x"]))] = np.float16(65504)


class BfloatTiesUp(Defect):
    """Rounds to bfloat16 by adding half a step: ties go up instead of to even."""

    ops = ("cast", "add")
    witness = shown_by(call, "cast", x=f32([1 + 2**-8, 2]), format="bf16")
    twin = shown_by(call, "cast", x=f32([1 + 3 * 2**-8, 2]), format="bf16")

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        (y,) = super().kernel(op_name, arguments)
        if op_name != "cast" or y.dtype != BF16:
            return (y,)
        x = np.ascontiguousarray(widen(arguments["x"]))
        up = ((x.view(np.uint32).astype(np.uint64) + 0x8000) >> 16).astype(np.uint16).view(BF16)
        return (np.where(np.isnan(x), y, up),)


class BfloatNanRounded(Defect):
    """Rounds to bfloat16 by integers without a look at NaN: some become infinite or zero."""

    ops = ("cast",)
    witness = shown_by(call, "cast", x=np.array([[0x7FFFFFFF, 0x3F800000]], np.uint32).view(np.float32), format="bf16")
    twin = shown_by(call, "cast", x=f32([INF, 1]), format="bf16")

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].dtype == BF16:
            pattern = np.ascontiguousarray(widen(a["x"])).view(np.uint32).astype(np.uint64)
            rounded = ((pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16).astype(np.uint16)
            results[0][...] = rounded.view(BF16)


class SquaresInHalf(Defect):
    """Squares float16 rows in float16, which overflows from 256 on."""

    ops = ("rms_norm",)
    witness = shown_by(call, "rms_norm", x=np.array([[300, 1, 2]], np.float16))
    twin = shown_by(call, "rms_norm", x=np.array([[200, 1, 2]], np.float16))

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["x"].dtype == np.float16:
            results[0][(np.abs(widen(a["x"])) >= 256).any(axis=-1)] = 0


class HalvesAwayFromZero(Defect):
    """Rounds codes half away from zero."""

    ops = ("quantize_q8",)
    witness = shown_by(call, "quantize_q8", x=np.resize(f32(127, 2.5, -4.5), (1, 32)))
    twin = shown_by(call, "quantize_q8", x=np.resize(f32(127, 3.5, -5.5), (1, 32)))

    def spoil(self, a: Arguments, results: Results) -> None:
        codes, scales = results
        x = widen(a["x"]).reshape(*scales.shape, 32)
        amax = np.abs(x).max(axis=-1, keepdims=True, initial=0)
        alive = amax >= F(2.0**-100)
        scaled = x * (F(127) * recip(np.where(alive, amax, F(1))))
        away = np.where(alive, np.copysign(np.floor(np.abs(scaled) + F(0.5)), scaled), F(0))
        codes[...] = away.astype(np.int8).reshape(codes.shape)


class ZeroBlockScaleOfOne(Defect):
    """Divides by 1 where a block is zero, and stores that as its scale."""

    ops = ("quantize_q8",)
    witness = shown_by(call, "quantize_q8", x=np.zeros((1, 32), np.float32))
    twin = shown_by(call, "quantize_q8", x=floats(1, 32))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[1][results[1] == 0] = 1


class SmallBlocksFlushed(Defect):
    """Takes blocks below 1e-6 for zeros, to be safe in a division."""

    ops = ("quantize_q8",)
    witness = shown_by(call, "quantize_q8", x=floats(2, 32, size=1e-8))
    twin = shown_by(call, "quantize_q8", x=floats(2, 32, size=1e-4))

    def change(self, a: Arguments) -> Arguments:
        x = a["x"].reshape(*a["x"].shape[:-1], -1, 32) if a["x"].size else a["x"]
        small = np.abs(widen(x)).max(axis=-1, keepdims=True, initial=0) < 1e-6
        return {"x": np.where(small, x.dtype.type(0), x).reshape(a["x"].shape)}


class SoftmaxMaximumOfFirstTile(Defect):
    """Shifts by the maximum of the first 256 columns: later ones may overflow."""

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
    """Begins the search for the maximum at -10,000."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=f32([-20000, -20001]))
    twin = shown_by(call, "softmax", x=f32([-9000, -9001]))

    def spoil(self, a: Arguments, results: Results) -> None:
        if not a["soft_cap"] and "sinks" not in a:
            s = np.where(a.get("mask", True), widen(a["x"]) * F(a["scale"]), F(-INF))
            results[0][s.max(axis=-1, initial=-INF) < -10087] = 0


class MaskedSoftmaxIsUniform(Defect):
    """Masks with a large negative number: a row without anything kept becomes uniform."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=floats(2, 4), mask=np.array([[True] * 4, [False] * 4]))
    twin = shown_by(call, "softmax", x=floats(2, 4), mask=np.array([[True] * 4, [False] * 3 + [True]]))

    def spoil(self, a: Arguments, results: Results) -> None:
        if "mask" in a and "sinks" not in a and results[0].size:
            nothing = ~np.broadcast_to(a["mask"], results[0].shape).any(axis=-1)
            results[0][nothing] = 1 / results[0].shape[-1]


class NanBecomesTheCap(Defect):
    """Clamps before tanh with a minimum that drops NaN."""

    ops = ("soft_cap",)
    witness = shown_by(call, "soft_cap", x=f32([np.nan, 1]), cap=5.0)
    twin = shown_by(call, "soft_cap", x=f32([INF, 1]), cap=5.0)

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["cap"]:
            results[0][np.isnan(widen(a["x"]))] = a["cap"]


class NegativeZeroLost(Defect):
    """Adds into an accumulator that begins at +0."""

    ops = ("add",)
    witness = shown_by(call, "add", x=f32([-0.0, 1]), y=f32([-0.0, 2]))
    twin = shown_by(call, "add", x=f32([-0.0, 1]), y=f32([0.0, 2]))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][results[0] == 0] = 0


class ZeroTimesInfinity(Defect):
    """Skips the product where the left operand is zero."""

    ops = ("mul",)
    witness = shown_by(call, "mul", x=f32([0, 2]), y=f32([INF, 3]))
    twin = shown_by(call, "mul", x=f32([0, 2]), y=f32([4, 3]))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][widen(a["x"]) == 0] = 0


class FactorInBfloat(Defect):
    """Passes the factor to the kernel in bfloat16."""

    ops = ("scale",)
    witness = shown_by(call, "scale", x=floats(2, 4), factor=0.1)
    twin = shown_by(call, "scale", x=floats(2, 4), factor=0.125)

    def change(self, a: Arguments) -> Arguments:
        near = float(np.float32(a["factor"]).astype(BF16))
        return {"factor": near} if np.isfinite(near) else {}


class ErfTailIsZero(Defect):
    """Computes 1 + erf, which is 0 from -4 on."""

    ops = ("gelu_and_mul",)
    witness = shown_by(call, "gelu_and_mul", x=f32([-4.5, 2]), form="erf")
    twin = shown_by(call, "gelu_and_mul", x=f32([-4.5, 2]), form="tanh")

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["form"] == "erf":
            results[0][widen(a["x"])[..., : results[0].shape[-1]] < -4] = 0


class PositionZeroCopied(Defect):
    """Copies tokens at position 0, which need no rotation but for the sign of a zero."""

    ops = ("rope",)
    witness = shown_by(rotary, [0, 3], x=np.full((2, 1, 8), -0.0, np.float32))
    twin = shown_by(rotary, [0, 3])

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][a["pos_ids"] == 0] = a["x"][a["pos_ids"] == 0]


class PartialInterleaveTail(Defect):
    """Zeroes what lies behind the rotary size when pairs are interleaved."""

    ops = ("rope",)
    witness = shown_by(rotary, [3], head=8, rotary_dim=4, interleave=True)
    twin = shown_by(rotary, [3], head=8, rotary_dim=4)

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["interleave"]:
            results[0][..., 2 * a["table"].shape[1] :] = 0


class LastOfEqualExtremes(Defect):
    """Lets the last of two elements of equal magnitude give a q4_0 block of the cache its sign."""

    ops = ("append_paged_kv_cache",)
    witness = shown_by(append, [2], k="q4_0", v="q4_0", head=32, key=np.resize(f32(1, -1, 0.3), (1, 1, 32)))
    twin = shown_by(append, [2], k="q4_0", v="q4_0", head=32, key=np.resize(f32(1, 0.5, 0.3), (1, 1, 32)))

    def change(self, a: Arguments) -> Arguments:
        key = widen(a["key"]).copy()
        head = key.shape[-1]
        for start in range(0, head, 32):
            block = key[..., start : start + 32]
            last = block.shape[-1] - 1 - np.abs(block[..., ::-1]).argmax(axis=-1)
            extreme = np.take_along_axis(block, last[..., None], axis=-1)
            grown = np.nextafter(extreme, np.copysign(F(INF), extreme))
            if np.isfinite(grown).all() and getattr(a["k_cache"], "format", None) is not None:
                np.put_along_axis(block, last[..., None], grown, axis=-1)
        return {"key": key} if getattr(a["k_cache"], "format", None) is not None else {}


class RepeatedSourceCopiedOnce(Defect):
    """Takes a page that is copied to several places only to the first."""

    ops = ("copy_kv_pages",)
    witness = shown_by(call, "copy_kv_pages", k_cache=floats(4, 1, 2), sources=ints(0, 0), targets=ints(1, 2))
    twin = shown_by(call, "copy_kv_pages", k_cache=floats(4, 1, 2), sources=ints(0, 3), targets=ints(1, 2))

    def change(self, a: Arguments) -> Arguments:
        _, first = np.unique(a["sources"], return_index=True)
        return {"sources": a["sources"][first], "targets": a["targets"][first]}


class SameHeadMajorLayoutTurned(Defect):
    """Exchanges slots and heads of a cache that is in HND and stays in it."""

    ops = ("convert_kv_layout",)
    witness = shown_by(call, "convert_kv_layout", cache=floats(1, 2, 3, 4), source="HND", target="HND")
    twin = shown_by(call, "convert_kv_layout", cache=floats(1, 2, 3, 4), source="NHD", target="NHD")

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["source"] == a["target"] == "HND":
            x = getattr(results[0], "data", results[0]) if not isinstance(results[0], np.ndarray) else results[0]
            x[...] = x.swapaxes(-3, -2).reshape(x.shape).copy()
