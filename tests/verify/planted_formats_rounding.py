"""Where a value is rounded when formats meet, and what becomes of its denormals. See planted_formats.py."""

from __future__ import annotations

import numpy as np
from planted import F, Results, defined, stored
from planted_base import Arguments, Defect, Scene, shown_by
from planted_formats import format_name
from planted_scenes import append, call, floats, ints, product

from samebits.core.format import Packed, copy_tensor
from samebits.core.numerics.rounding import BF16, widen


class SmallBfloatOperandsDropped(Defect):
    """Takes bfloat16 weights below 2^-30 for zeros."""

    ops = ("gemm",)
    witness = shown_by(call, "gemm", x=floats(1, 4), weight=floats(2, 4, fmt="bf16", size=2.0**-40))
    twin = shown_by(call, "gemm", x=floats(1, 4), weight=floats(2, 4, fmt="bf16"))

    def change(self, a: Arguments) -> Arguments:
        weight = a["weight"]
        if format_name(weight) or weight.dtype != BF16:
            return {}
        return {"weight": np.where(np.abs(widen(weight)) < 2.0**-30, BF16.type(0), weight)}


class DenormalHalfWeights(Defect):
    """Takes subnormal float16 weights, below 2^-14, for zeros."""

    ops = ("gemm", "grouped_gemm")
    witness = shown_by(call, "gemm", x=floats(1, 4), weight=floats(2, 4, fmt="f16", size=1e-5))
    twin = shown_by(call, "gemm", x=floats(1, 4), weight=np.ones((2, 4), np.float16))

    def change(self, a: Arguments) -> Arguments:
        w = a["weight"]
        if format_name(w) or w.dtype != np.float16:
            return {}
        return {"weight": np.where(np.abs(w) < 2.0**-14, np.float16(0), w)}


class BiasInTheFormatOfX(Defect):
    """Rounds a float32 bias to the activations' 16 bits before it is added."""

    ops = ("gemm",)
    witness = shown_by(call, "gemm", x=floats(2, 32, fmt="bf16"), weight=floats(64, 32), bias=floats(64))
    twin = shown_by(product, 2, 4, 32, "bf16", bias=floats(4))

    def change(self, a: Arguments) -> Arguments:
        with np.errstate(over="ignore"):
            return {"bias": a["bias"].astype(a["x"].dtype)} if "bias" in a else {}


class RoundedBeforeTheWeight(Defect):
    """Rounds the normalized row to 16 bits before multiplying by the weight."""

    ops = ("rms_norm", "layer_norm")
    witness = shown_by(call, "rms_norm", x=floats(2, 16, fmt="bf16"), weight=floats(16))
    twin = shown_by(call, "rms_norm", x=floats(2, 16), weight=floats(16))

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        if arguments["x"].dtype == F or "weight" not in arguments or "bias" in arguments:
            return super().kernel(op_name, arguments)
        (y,) = defined(op_name, {**arguments, "weight": None})
        return ((widen(y) * widen(arguments["weight"])).astype(y.dtype),)


class ResidualInTheFormatOfX(Defect):
    """Normalizes a float32 residual after rounding it to the 16 bits of x."""

    ops = ("fused_add_rms_norm",)
    witness = shown_by(
        call, "fused_add_rms_norm", x=floats(2, 16, fmt="bf16"), residual=floats(2, 16, seed=1), weight=floats(16)
    )
    twin = shown_by(call, "fused_add_rms_norm", x=floats(2, 16), residual=floats(2, 16, seed=1), weight=floats(16))

    def spoil(self, a: Arguments, results: Results) -> None:
        rounded = results[1].astype(a["x"].dtype)
        results[0][...] = defined("rms_norm", {"x": rounded, "weight": a["weight"], "eps": a["eps"]})[0]


class OperandInTheFormatOfX(Defect):
    """Rounds the right operand to the left one's 16 bits first."""

    ops = ("add", "mul")
    witness = shown_by(call, "mul", x=floats(2, 16, fmt="f16"), y=floats(2, 16, seed=1))
    twin = shown_by(call, "mul", x=floats(2, 16), y=floats(2, 16, seed=1, fmt="f16"))

    def change(self, a: Arguments) -> Arguments:
        with np.errstate(over="ignore"):
            return {"y": a["y"].astype(a["x"].dtype)}


def mixed_states(a: str, b: str) -> Scene:
    values = {"v_a": floats(2, 4, 16, fmt=a), "v_b": floats(2, 4, 16, seed=1, fmt=b)}
    return call("merge_state", **values, s_a=floats(2, 4), s_b=floats(2, 4, seed=1))


class MergedInTheFormatOfA(Defect):
    """Reads both states in the format of the first."""

    ops = ("merge_state",)
    witness = shown_by(mixed_states, "bf16", "f32")
    twin = shown_by(mixed_states, "f32", "bf16")

    def change(self, a: Arguments) -> Arguments:
        with np.errstate(over="ignore"):
            return {"v_b": a["v_b"].astype(a["v_a"].dtype)}


class EmbeddingThroughHalf(Defect):
    """Unpacks a table to float16 first when bfloat16 is asked for."""

    ops = ("embedding",)
    witness = shown_by(call, "embedding", table=floats(3, 64, fmt="q8_0", size=1e5), ids=ints(0, 2), format="bf16")
    twin = shown_by(call, "embedding", table=floats(3, 64, fmt="q8_0", size=1e5), ids=ints(0, 2))

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["format"] == "bf16" and isinstance(a["table"], Packed):
            with np.errstate(over="ignore"):
                values = defined("embedding", {**a, "format": "f16"})[0]
            results[0][...] = widen(values).astype(results[0].dtype)


class PaddingOfHeadsKept(Defect):
    """Writes a quantized head and leaves what was in the padding of its last block."""

    ops = ("append_paged_kv_cache",)
    witness = shown_by(append, [2], head=40, k="q8_0", v="q8_0")
    twin = shown_by(append, [2], head=32, k="q8_0", v="q8_0")

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        k_cache, head = arguments["k_cache"], arguments["key"].shape[-1]
        if format_name(k_cache) != "q8_0" or head % 32 == 0:
            return super().kernel(op_name, arguments)
        before = stored(copy_tensor(k_cache))
        results = super().kernel(op_name, arguments)
        padding = slice(head // 32 * 34 + 2 + head % 32, None)
        stored(k_cache)[..., padding] = before[..., padding]
        return results


class LastUnitOfHalfResults(Defect):
    """Rounds float16 results twice: to 13 bits in the accumulator, then to 11."""

    ops = ("silu_and_mul", "gelu_and_mul")
    witness = shown_by(call, "silu_and_mul", x=floats(64, 64, fmt="f16"))
    twin = shown_by(call, "silu_and_mul", x=floats(64, 64))

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        if arguments["x"].dtype != np.float16:
            return super().kernel(op_name, arguments)
        (wide,) = super().kernel(op_name, {**arguments, "x": widen(arguments["x"])})
        pattern = wide.view(np.uint32)
        once = np.where(np.isfinite(wide), (pattern + 0x3FF + ((pattern >> 11) & 1)) & ~np.uint32(0x7FF), pattern)
        with np.errstate(over="ignore"):
            return (once.astype(np.uint32).view(np.float32).astype(np.float16),)
