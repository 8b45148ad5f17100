"""What is not settled, or settled elsewhere: defects in numbers around 2^-50 and in the sign of zeros."""

from __future__ import annotations

import numpy as np
from planted import F, Results
from planted_base import Arguments, Defect, shown_by
from planted_scenes import call, f32

from samebits.core.format import FORMATS, Packed
from samebits.core.numerics.elementary import recip, rsqrt
from samebits.core.numerics.rounding import F16, rounded, widen
from samebits.ops.norm import mean


class TinyProductsKept(Defect):
    """Keeps products below 2^-50, which the definition gives as 0."""

    ops = ("mul",)
    witness = shown_by(call, "mul", x=f32([2.0**-30, 2]), y=f32([2.0**-21, 3]))
    twin = shown_by(call, "mul", x=f32([2.0**-30, 2]), y=f32([2.0**-20, 3]))

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].dtype == F:
            product = widen(a["x"]) * widen(a["y"])
            results[0][...] = np.where(product == 0, F(0), product)


class TinySumsKept(Defect):
    """Keeps sums below 2^-50, which the definition gives as 0."""

    ops = ("add",)
    witness = shown_by(call, "add", x=f32([1.5 * 2.0**-50, 2]), y=f32([-(2.0**-50), 3]))
    twin = shown_by(call, "add", x=f32([2.5 * 2.0**-50, 2]), y=f32([-(2.0**-50), 3]))

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].dtype == F:
            results[0][...] = widen(a["x"]) + widen(a["y"])


class ZeroTimesNegative(Defect):
    """Gives -0 as a product of a zero and a negative number."""

    ops = ("mul",)
    witness = shown_by(call, "mul", x=f32([0, 2]), y=f32([-4, 3]))
    twin = shown_by(call, "mul", x=f32([0, 2]), y=f32([4, 3]))

    def spoil(self, a: Arguments, results: Results) -> None:
        y = results[0]
        negative = np.signbit(widen(a["x"])) ^ np.signbit(widen(a["y"]))
        y[(y == 0) & negative] = -0.0


class ZeroScaledByNegative(Defect):
    """Gives -0 for a zero under a negative factor."""

    ops = ("scale",)
    witness = shown_by(call, "scale", x=f32([0, 1]), factor=-3.7)
    twin = shown_by(call, "scale", x=f32([0, 1]), factor=3.7)

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["factor"] < 0:
            results[0][results[0] == 0] = -0.0


class NegativeHalvesLeftAtZero(Defect):
    """Rounds small negative numbers to float16's -0."""

    ops = ("cast",)
    witness = shown_by(call, "cast", x=f32([-1e-9, 1]), format="f16")
    twin = shown_by(call, "cast", x=f32([-1e-3, 1]), format="f16")

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].dtype == F16 and a["x"].dtype != F16:
            results[0][...] = rounded(widen(a["x"]), F16)


class NegativeZeroOfBlocks(Defect):
    """Unpacks a code of 0 under a negative scale to -0."""

    ops = ("embedding",)
    witness = shown_by(
        call, "embedding", table=FORMATS["q4_0"].pack(np.eye(32, dtype=np.float32)), ids=np.arange(2, dtype=np.int32)
    )
    twin = shown_by(
        call, "embedding", table=FORMATS["q4_0"].pack(-np.eye(32, dtype=np.float32)), ids=np.arange(2, dtype=np.int32)
    )

    def spoil(self, a: Arguments, results: Results) -> None:
        if isinstance(a["table"], Packed):
            rows = a["table"][a["ids"]].unpack()
            results[0][(rows == 0) & np.signbit(rows)] = -0.0


class NormSettledOnce(Defect):
    """Replaces values below 2^-50 by 0 only after the product with the weight, not before it too."""

    ops = ("rms_norm",)
    witness = shown_by(call, "rms_norm", x=f32([1024, 2.0**-45]), weight=np.array([1, 256], np.float32))
    twin = shown_by(call, "rms_norm", x=f32([1024, 2.0**-35]), weight=np.array([1, 256], np.float32))

    def spoil(self, a: Arguments, results: Results) -> None:
        x, weight, bias = (None if a.get(n) is None else widen(a[n]) for n in ("x", "weight", "bias"))
        if x is None or weight is None or bias is not None or results[0].dtype != F:
            return
        y = (x * rsqrt(mean(x * x) + F(a["eps"]))) * weight
        results[0][...] = np.where(np.abs(y) < 2.0**-50, F(0), y)


class FaintBlocksQuantized(Defect):
    """Quantizes blocks whose largest magnitude is below 2^-43, which the definition gives as zeros."""

    ops = ("quantize_q8",)
    witness = shown_by(call, "quantize_q8", x=np.full((1, 32), 2.0**-45, np.float32))
    twin = shown_by(call, "quantize_q8", x=np.full((1, 32), 2.0**-40, np.float32))

    def spoil(self, a: Arguments, results: Results) -> None:
        codes, scales = results
        x = widen(a["x"]).reshape(*scales.shape, 32)
        amax = np.abs(x).max(axis=-1, initial=0)
        faint = (amax > 0) & (amax < 2.0**-43)
        to_code = F(127) * recip(np.where(faint, amax, F(1)))[..., None]
        codes.reshape(x.shape)[faint] = np.rint(x * to_code)[faint]
        scales[faint] = (amax * F(1 / 127))[faint]


class GatesBelowExp(Defect):
    """Computes exp below -34.5, where the definition gives 0."""

    ops = ("silu_and_mul",)
    witness = shown_by(call, "silu_and_mul", x=f32([-36, 8]))
    twin = shown_by(call, "silu_and_mul", x=f32([-33, 8]))

    def spoil(self, a: Arguments, results: Results) -> None:
        gate, up = np.split(widen(a["x"]).astype(np.float64), 2, axis=-1)
        low = (gate < -34.5) & (gate > -80)
        y = gate * np.exp(np.where(low, gate, 0.0)) * up
        results[0][low & (np.abs(y) >= 2.0**-50)] = y[low & (np.abs(y) >= 2.0**-50)]
