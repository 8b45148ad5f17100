"""Small errors at `fast`, which claims no bits: a bound that follows from a call's sums is all that tells them.

Each is what a kernel does that is nearly right: a term less, a constant that is rounded, an approximation.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from planted import F, Results
from planted_attention import masked
from planted_base import Arguments, Defect, shown_by
from planted_scenes import append, attention, call, floats, product, rotary, rows_of

from samebits.core.format import Packed
from samebits.core.tiers import Tier

BF16 = ml_dtypes.bfloat16


class Fast(Defect):
    """A defect that claims no more than `fast`."""

    tier = Tier.FAST


def shrunk(results: Results, factor: float) -> None:
    """Multiplies the first result by a factor."""
    results[0][...] = (results[0].astype(F) * F(factor)).astype(results[0].dtype)


class LastKeyLostPast40(Fast):
    """Leaves out the last position that a query sees where it sees more than 40."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (41,))
    twin = shown_by(attention, (40,))

    def change(self, a: Arguments) -> Arguments:
        seen = np.diff(a["qo_indptr"])
        if not a["causal"] or a["window_left"] >= 0 or "custom_mask" in a or not len(seen):
            return {}
        return masked(a, lambda b, q, kv: (kv < q) | (q < 40))


class WindowOneShortPast64(Fast):
    """Sees one position too few to its left where the window is larger than 64."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (100,), window_left=65)
    twin = shown_by(attention, (100,), window_left=64)

    def change(self, a: Arguments) -> Arguments:
        return {"window_left": a["window_left"] - 1} if a["window_left"] > 64 else {}


class ScaleOnePercentOff(Fast):
    """Multiplies the scores by a scale that is 1 % too large where heads are wider than 64."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (12,), head=65)
    twin = shown_by(attention, (12,), head=64)

    def change(self, a: Arguments) -> Arguments:
        width = a["q"].shape[-1]
        usual = width**-0.5 if a["sm_scale"] is None else a["sm_scale"]
        return {"sm_scale": usual * 1.01} if width > 64 else {}


class SoftCapInHalf(Fast):
    """Divides scores by a soft cap that is 2 % too large."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (6,), logits_soft_cap=1.0)
    twin = shown_by(attention, (6,))

    def change(self, a: Arguments) -> Arguments:
        return {"logits_soft_cap": a["logits_soft_cap"] * 1.02}


class DeltaFivePercentSmall(Fast):
    """Multiplies the outputs of the delta rule by 0.95."""

    ops = ("gated_delta_rule",)

    def spoil(self, a: Arguments, results: Results) -> None:
        shrunk(results, 0.95)

    @staticmethod
    def scene(num_tokens: int) -> Any:
        heads, width = 1, 8
        per_head = {n: floats(num_tokens, heads, seed=i) for i, n in enumerate(("a", "b"))}
        rows = {n: floats(num_tokens, heads, width, seed=i, size=0.35) for i, n in enumerate(("q", "k", "v"))}
        memory = {
            "state": np.zeros((1, heads, width, width), F),
            "ring": np.zeros((1, 16, heads * (2 * width + 1)), F),
        }
        return call(
            "gated_delta_rule",
            **{**rows, **per_head, **memory, "decay": np.full(heads, -0.5, F), "dt_bias": np.zeros(heads, F)},
            qo_indptr=np.array([0, num_tokens], np.int32),
            positions=np.arange(num_tokens, dtype=np.int32),
            slots=np.zeros(1, np.int32),
        )

    witness = shown_by(lambda: DeltaFivePercentSmall.scene(20))
    twin = shown_by(lambda: DeltaFivePercentSmall.scene(0))


class ScanFivePercentSmall(DeltaFivePercentSmall):
    """Multiplies the outputs of the scan by 0.95."""

    ops = ("ssm_scan",)

    @staticmethod
    def scene(num_tokens: int) -> Any:
        heads, width = 1, 8
        rows = {n: floats(num_tokens, heads, width, seed=i) for i, n in enumerate(("x", "B", "C"))}
        return call(
            "ssm_scan",
            **{**rows, "dt": floats(num_tokens, heads), "decay": np.full(heads, -0.5, F)},
            **{"dt_bias": np.zeros(heads, F), "state": np.zeros((1, heads, width, width), F)},
            ring=np.zeros((1, 16, heads * (2 * width + 1)), F),
            qo_indptr=np.array([0, num_tokens], np.int32),
            positions=np.arange(num_tokens, dtype=np.int32),
            slots=np.zeros(1, np.int32),
        )

    witness = shown_by(lambda: ScanFivePercentSmall.scene(20))
    twin = shown_by(lambda: ScanFivePercentSmall.scene(0))


class FaintProbabilitiesDropped(Fast):
    """Stores 0 for probabilities below 2^-10."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=floats(2, 64, size=8.0))
    twin = shown_by(call, "softmax", x=floats(2, 8, size=0.5))

    def spoil(self, a: Arguments, results: Results) -> None:
        y = results[0]
        y[y.astype(F) < 2.0**-10] = 0


class SumInHalf(Fast):
    """Divides by a sum of exponentials that is rounded to bfloat16."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=floats(2, 64))
    twin = shown_by(call, "softmax", x=np.zeros((2, 64), F))

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(results[0])
        if rows.size and not a.get("soft_cap") and "sinks" not in a:
            top = rows.astype(F).max(axis=-1, keepdims=True)
            total = 1 / np.where(top > 0, top, F(1))
            rows[...] = (rows.astype(F) * (total / total.astype(BF16).astype(F))).astype(rows.dtype)


class SinkTooLarge(Fast):
    """Makes the sink 1 % larger for rows of more than 256 columns."""

    ops = ("softmax",)
    witness = shown_by(call, "softmax", x=floats(2, 257), sinks=floats(2))
    twin = shown_by(call, "softmax", x=floats(2, 256), sinks=floats(2))

    def change(self, a: Arguments) -> Arguments:
        if "sinks" not in a or a["x"].shape[-1] <= 256:
            return {}
        return {"sinks": (a["sinks"].astype(F) + F(0.01)).astype(a["sinks"].dtype)}


class TanhWhereErfIsAsked(Fast):
    """Computes gelu by tanh whatever form is asked for."""

    ops = ("gelu_and_mul",)
    witness = shown_by(call, "gelu_and_mul", x=floats(2, 8), form="erf")
    twin = shown_by(call, "gelu_and_mul", x=floats(2, 8), form="tanh")

    def change(self, a: Arguments) -> Arguments:
        return {"form": "tanh"}


class SigmoidOfGelu(Fast):
    """Approximates gelu's tanh form by gate * sigmoid(1.702 * gate)."""

    ops = ("gelu_and_mul",)
    witness = shown_by(call, "gelu_and_mul", x=floats(2, 8), form="tanh")
    twin = shown_by(call, "gelu_and_mul", x=floats(2, 8), form="erf")

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["form"] == "tanh":
            gate, up = np.split(a["x"].astype(F), 2, axis=-1)
            with np.errstate(over="ignore"):
                results[0][...] = (gate / (1 + np.exp(F(-1.702) * gate)) * up).astype(results[0].dtype)


class EpsTwiceAsLarge(Fast):
    """Adds twice the eps to the mean square."""

    ops = ("rms_norm",)
    witness = shown_by(call, "rms_norm", x=floats(2, 8, size=0.01))
    twin = shown_by(call, "rms_norm", x=np.zeros((2, 8), F))

    def change(self, a: Arguments) -> Arguments:
        return {"eps": 2 * a["eps"]}


class MeanOfPaddedWidth(Fast):
    """Divides the sum of squares of 33 to 63 elements, or some more, by a width rounded up to a multiple of 32."""

    ops = ("rms_norm",)
    witness = shown_by(call, "rms_norm", x=floats(2, 33))
    twin = shown_by(call, "rms_norm", x=floats(2, 64))

    def spoil(self, a: Arguments, results: Results) -> None:
        width = a["x"].shape[-1]
        if width > 32 and "bias" not in a:
            shrunk(results, (-(-width // 32) * 32 / width) ** 0.5)


class VarianceOfOneLess(Fast):
    """Divides the centred squares by K - 1, as an unbiased variance does."""

    ops = ("layer_norm",)
    witness = shown_by(call, "layer_norm", x=floats(2, 8))
    twin = shown_by(call, "layer_norm", x=floats(2, 1))

    def spoil(self, a: Arguments, results: Results) -> None:
        width = a["x"].shape[-1]
        if width > 1 and "bias" not in a:
            shrunk(results, ((width - 1) / width) ** 0.5)


class LengthInHalf(Fast):
    """Divides by a length that is rounded to float16's 11 bits."""

    ops = ("l2_norm",)
    witness = shown_by(call, "l2_norm", x=floats(2, 8))
    twin = shown_by(call, "l2_norm", x=np.zeros((2, 8), F))

    def spoil(self, a: Arguments, results: Results) -> None:
        x = a["x"].astype(np.float64)
        length = np.sqrt((x * x).sum(axis=-1, keepdims=True) + a["eps"]).astype(F)
        bits = (np.ascontiguousarray(length).view(np.uint32) & np.uint32(0xFFFFE000)).view(F)
        results[0][...] = (results[0].astype(F) * (length / bits)).astype(results[0].dtype)


class TableInHalf(Fast):
    """Reads cosines and sines that were stored in bfloat16."""

    ops = ("rope",)
    witness = shown_by(rotary, [3])
    twin = shown_by(rotary, [0])

    def change(self, a: Arguments) -> Arguments:
        return {"table": a["table"].astype(BF16).astype(F)}


class TailOfK(Fast):
    """Leaves out the terms of K beyond the last multiple of 64 where K is larger than 1000."""

    ops = ("gemm",)
    witness = shown_by(product, 1, 2, 1025)
    twin = shown_by(product, 1, 2, 1024)

    def change(self, a: Arguments) -> Arguments:
        whole = a["x"].shape[-1] // 64 * 64
        if a["x"].shape[-1] <= 1000 or isinstance(a["weight"], Packed):
            return {}
        return {"x": a["x"][:, :whole], "weight": a["weight"][:, :whole]}


class SumsInBfloat16(Fast):
    """Keeps partial sums of a product over more than 64 terms in bfloat16, 32 terms at a time."""

    ops = ("gemm",)
    witness = shown_by(product, 1, 2, 65)
    twin = shown_by(product, 1, 2, 64)

    def spoil(self, a: Arguments, results: Results) -> None:
        x, w = a["x"].astype(F), a["weight"]
        if isinstance(w, Packed) or x.shape[1] <= 64 or not results[0].size:
            return
        total = np.zeros(results[0].shape, BF16)
        with np.errstate(over="ignore", invalid="ignore"):
            for at in range(0, x.shape[1], 32):
                part = x[:, at : at + 32].astype(w.dtype).astype(F) @ w[:, at : at + 32].astype(F).T
                total = (total.astype(F) + part).astype(BF16)
            y = total.astype(F) if "bias" not in a else total.astype(F) + a["bias"].astype(F)
            if np.isfinite(results[0].astype(F)).all() and np.isfinite(y).all():
                results[0][...] = y.astype(results[0].dtype)


class OperandsInBfloat16(Fast):
    """Multiplies float32 activations and float32 weights in bfloat16."""

    ops = ("gemm",)
    witness = shown_by(product, 2, 3, 16)
    twin = shown_by(product, 2, 3, 32, fmt="q8_0")

    def change(self, a: Arguments) -> Arguments:
        if isinstance(a["weight"], Packed) or a["weight"].dtype != F:
            return {}
        return {"x": a["x"].astype(BF16).astype(F), "weight": a["weight"].astype(BF16).astype(F)}


class ScalesInBfloat16(Fast):
    """Multiplies by activation scales that were stored in bfloat16."""

    ops = ("gemm_q8",)
    witness = shown_by(
        call,
        "gemm_q8",
        codes=np.ones((1, 32), np.int8),
        scales=np.full((1, 1), 0.1, F),
        weight=floats(2, 32, fmt="q8_0"),
    )
    twin = shown_by(
        call,
        "gemm_q8",
        codes=np.ones((1, 32), np.int8),
        scales=np.full((1, 1), 0.5, F),
        weight=floats(2, 32, fmt="q8_0"),
    )

    def change(self, a: Arguments) -> Arguments:
        return {"scales": a["scales"].astype(BF16).astype(F)}


class CodesTowardsZero(Fast):
    """Cuts codes instead of rounding them."""

    ops = ("quantize_q8",)
    witness = shown_by(call, "quantize_q8", x=floats(1, 32))
    twin = shown_by(call, "quantize_q8", x=np.ones((1, 32), F))

    def spoil(self, a: Arguments, results: Results) -> None:
        scales = np.repeat(results[1].astype(np.float64), 32, axis=-1)
        exact = np.divide(a["x"].astype(np.float64), scales, out=np.zeros(scales.shape), where=scales > 0)
        results[0][...] = np.trunc(exact * (1 + 1e-6)).astype(np.int8)


class CachedCodesTowardsZero(Fast):
    """Cuts the codes of new keys and values in int8 blocks instead of rounding them."""

    ops = ("append_paged_kv_cache", "rope_and_append", "rope_both_and_append")
    witness = shown_by(append, [3], k="q8_0", v="q8_0", head=32)
    twin = shown_by(append, [3], k="q4_0", v="q4_0", head=32)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        tensors = {n: arguments[n] for n in ("k_cache", "v_cache") if isinstance(arguments.get(n), Packed)}
        before = {n: x.data.copy() for n, x in tensors.items()}
        results = super().kernel(op_name, arguments)
        for name, cache in tensors.items():
            if cache.format.name == "q8_0":
                blocks, old = (x.reshape(*x.shape[:-1], -1, 34) for x in (cache.data, before[name]))
                codes = blocks[..., 2:].view(np.int8)
                is_new = (blocks != old).any(axis=-1, keepdims=True)
                odd = codes % 2 != 0  # a cut moves about every second code
                codes[...] = np.where(is_new & odd & (np.abs(codes) < 127), codes - np.sign(codes), codes)
        return results


class WeightsInHalfOfMerge(Fast):
    """Merges two states with weights in bfloat16."""

    ops = ("merge_state",)
    witness = shown_by(
        call,
        "merge_state",
        v_a=floats(1, 1, 4),
        s_a=floats(1, 1),
        v_b=floats(1, 1, 4, seed=1),
        s_b=floats(1, 1, seed=1),
    )
    twin = shown_by(
        call,
        "merge_state",
        v_a=floats(1, 1, 4),
        s_a=np.ones((1, 1), F),
        v_b=floats(1, 1, 4, seed=1),
        s_b=np.ones((1, 1), F),
    )

    def spoil(self, a: Arguments, results: Results) -> None:
        alive = np.isfinite(a["s_a"]) & np.isfinite(a["s_b"])
        gap = np.where(alive, a["s_b"] - np.where(alive, a["s_a"], 0), 0).astype(np.float64)
        w = (1 / (1 + np.exp2(np.clip(gap, -100, 100)))).astype(BF16).astype(F)[..., None]
        mixed = a["v_a"].astype(F) * w + a["v_b"].astype(F) * (1 - w)
        is_moved = alive[..., None] & (np.abs(gap[..., None]) > 2**-20) & np.isfinite(mixed)
        results[0][...] = np.where(is_moved, mixed.astype(results[0].dtype), results[0])
