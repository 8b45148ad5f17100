"""Ties of a rounding, zeros, infinities and tiny numbers: defects in values which random inputs seldom hold."""

from __future__ import annotations

import numpy as np
from planted import F, Results, stored
from planted_base import Arguments, Defect, shown_by
from planted_scenes import append, call, f32, floats, ints, rotary

from samebits.core.format import Packed
from samebits.core.numerics.elementary import recip
from samebits.core.numerics.rounding import BF16, widen

INF = np.inf


class DenormalHalvesFlushed(Defect):
    """Widens float16 by shifting exponents, which turns its subnormals into zeros."""

    ops = ("cast", "silu_and_mul")
    witness = shown_by(call, "cast", x=np.array([[6e-6, 1]], np.float16))
    twin = shown_by(call, "cast", x=np.array([[7e-5, 1]], np.float16))

    def change(self, a: Arguments) -> Arguments:
        x = a["x"]
        return {"x": np.where(np.abs(x) < 2.0**-14, x * x.dtype.type(0), x)} if x.dtype == np.float16 else {}


class HalfSaturates(Defect):
    """Casts to the largest float16 where the definition gives infinity."""

    ops = ("cast",)
    witness = shown_by(call, "cast", x=f32([65520, 1]), format="f16")
    twin = shown_by(call, "cast", x=f32([65519, 1]), format="f16")

    def spoil(self, a: Arguments, results: Results) -> None:
        y = results[0]
        if y.dtype == np.float16:
            y[np.isinf(y) & np.isfinite(widen(a["x"]))] = np.float16(65504)


class BfloatTiesUp(Defect):
    """Rounds to bfloat16 by adding half a step, so that ties go up instead of to even."""

    ops = ("cast",)
    witness = shown_by(call, "cast", x=f32([1 + 2**-8, 2]), format="bf16")
    twin = shown_by(call, "cast", x=f32([1 + 3 * 2**-8, 2]), format="bf16")

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].dtype == BF16:
            x = np.ascontiguousarray(widen(a["x"]))
            up = ((x.view(np.uint32).astype(np.uint64) + 0x8000) >> 16).astype(np.uint16)
            results[0][...] = np.where(np.isnan(x), results[0], up.view(BF16))


class BfloatNanRounded(Defect):
    """Rounds to bfloat16 by integer arithmetic that turns some NaN into infinity or zero."""

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
        alive = amax >= F(2.0**-43)
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
    """Takes blocks whose largest magnitude is below 1e-6 for zeros."""

    ops = ("quantize_q8",)
    witness = shown_by(call, "quantize_q8", x=floats(2, 32, size=1e-8))
    twin = shown_by(call, "quantize_q8", x=floats(2, 32, size=1e-4))

    def change(self, a: Arguments) -> Arguments:
        x = a["x"].reshape(*a["x"].shape[:-1], -1, 32) if a["x"].size else a["x"]
        small = np.abs(widen(x)).max(axis=-1, keepdims=True, initial=0) < 1e-6
        return {"x": np.where(small, x.dtype.type(0), x).reshape(a["x"].shape)}


class NanBecomesTheCap(Defect):
    """Clamps before tanh with a minimum that drops NaN."""

    ops = ("soft_cap",)
    witness = shown_by(call, "soft_cap", x=f32([np.nan, 1]), cap=5.0)
    twin = shown_by(call, "soft_cap", x=f32([INF, 1]), cap=5.0)

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["cap"]:
            results[0][np.isnan(widen(a["x"]))] = a["cap"]


class FactorInBfloat(Defect):
    """Passes the factor to the kernel in bfloat16."""

    ops = ("scale",)
    witness = shown_by(call, "scale", x=floats(2, 4), factor=0.1)
    twin = shown_by(call, "scale", x=floats(2, 4), factor=0.125)

    def change(self, a: Arguments) -> Arguments:
        near = float(np.float32(a["factor"]).astype(BF16))
        return {"factor": near} if np.isfinite(near) else {}


class ErfTailIsZero(Defect):
    """Computes 1 + erf(x) by subtraction, which gives 0 below -4."""

    ops = ("gelu_and_mul",)
    witness = shown_by(call, "gelu_and_mul", x=f32([-4.5, 2]), form="erf")
    twin = shown_by(call, "gelu_and_mul", x=f32([-4.5, 2]), form="tanh")

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["form"] == "erf":
            results[0][widen(a["x"])[..., : results[0].shape[-1]] < -4] = 0


class PartialInterleaveTail(Defect):
    """Zeroes the elements behind the rotary size when pairs are interleaved."""

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
        if not isinstance(a["k_cache"], Packed):
            return {}
        key = widen(a["key"]).copy()
        for start in range(0, key.shape[-1], 32):
            block = key[..., start : start + 32]
            last = block.shape[-1] - 1 - np.abs(block[..., ::-1]).argmax(axis=-1)[..., None]
            grown = np.take_along_axis(block, last, axis=-1) * F(1 + 2**-22)
            np.put_along_axis(block, last, grown, axis=-1)
        return {"key": key}


class RepeatedSourceCopiedOnce(Defect):
    """Copies a page that has several targets only to the first of them."""

    ops = ("copy_kv_pages",)
    witness = shown_by(call, "copy_kv_pages", k_cache=floats(4, 1, 2), sources=ints(0, 0), targets=ints(1, 2))
    twin = shown_by(call, "copy_kv_pages", k_cache=floats(4, 1, 2), sources=ints(0, 3), targets=ints(1, 2))

    def change(self, a: Arguments) -> Arguments:
        _, first = np.unique(a["sources"], return_index=True)
        return {"sources": a["sources"][first], "targets": a["targets"][first]}


class SameHeadMajorLayoutTurned(Defect):
    """Transposes slots and heads of an HND cache that is to stay HND."""

    ops = ("convert_kv_layout",)
    witness = shown_by(call, "convert_kv_layout", cache=floats(1, 2, 3, 4), source="HND", target="HND")
    twin = shown_by(call, "convert_kv_layout", cache=floats(1, 2, 3, 4), source="NHD", target="NHD")

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["source"] == a["target"] == "HND":
            x = stored(results[0])
            x[...] = x.swapaxes(-3, -2).reshape(x.shape).copy()
