"""How a score is made and summed: defects of scales, caps, sinks, slopes and log-sum-exps. See planted_attention.py."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from planted import F, Results, defined
from planted_attention import Attention, mask_of, table_of
from planted_base import Arguments, Defect, shown_by
from planted_paged import attention_cache
from planted_scenes import attention, call, f32, floats

from samebits.core.format import Packed
from samebits.core.numerics.rounding import widen
from samebits.ops.attention import attend
from samebits.ops.softmax import soft_capped


class ScaleOfZeroIsDefault(Attention):
    """Takes a scale of 0, which averages all values, for the default 1/sqrt(D)."""

    witness = shown_by(attention, (6,), sm_scale=0.0)
    twin = shown_by(attention, (6,), sm_scale=0.5)

    def change(self, a: Arguments) -> Arguments:
        return {"sm_scale": a["sm_scale"] or None}


class ScaleOfStoredWidth(Attention):
    """Derives the default scale from the stored width of a head, which is padded to whole blocks."""

    witness = shown_by(attention, (6,), head=40, k="q8_0", v="q8_0")
    twin = shown_by(attention, (6,), head=64, k="q8_0", v="q8_0")

    def change(self, a: Arguments) -> Arguments:
        width = attention_cache(a).k.shape[-1]
        return {"sm_scale": 1.0 / float(np.sqrt(width))} if a["sm_scale"] is None else {}


class CappedSinks(Attention):
    """Applies the soft cap to the sinks as to the other logits."""

    witness = shown_by(attention, (6,), sinks=f32(3), logits_soft_cap=2.0)
    twin = shown_by(attention, (6,), sinks=f32(3))

    def change(self, a: Arguments) -> Arguments:
        if "sinks" not in a:
            return {}
        capped = soft_capped(np.maximum(a["sinks"], F(-1e30)), a["logits_soft_cap"])
        return {"sinks": np.where(np.isneginf(a["sinks"]), a["sinks"], capped)}


class ScaledSinks(Attention):
    """Multiplies the sinks by the scale of the scores."""

    witness = shown_by(attention, (6,), sinks=f32(3), sm_scale=0.5)
    twin = shown_by(attention, (6,), sinks=f32(3), sm_scale=1.0)

    def change(self, a: Arguments) -> Arguments:
        scale = F(1 / np.sqrt(a["q"].shape[-1]) if a["sm_scale"] is None else a["sm_scale"])
        return {"sinks": a["sinks"] * scale} if "sinks" in a and abs(scale) <= 1 and scale != 0 else {}


class SinkPerKvHead(Attention):
    """Indexes the sinks by KV head."""

    witness = shown_by(attention, (6,), heads=2, sinks=f32(0, 2))
    twin = shown_by(attention, (6,), heads=2, kv_heads=2, sinks=f32(0, 2))

    def change(self, a: Arguments) -> Arguments:
        heads = np.arange(a["q"].shape[1])
        group = len(heads) // attention_cache(a).k.shape[2]
        return {"sinks": a["sinks"][heads // group]} if "sinks" in a else {}


class SinkLostByLongSequences(Attention):
    """Loses the sinks when a sequence is longer than 128 positions and partial sums are merged."""

    witness = shown_by(attention, (129,), page_size=64, sinks=f32(1))
    twin = shown_by(attention, (128,), page_size=64, sinks=f32(1))

    def change(self, a: Arguments) -> Arguments:
        if "sinks" not in a or table_of(a).lengths.max(initial=0) <= 128:
            return {}
        return {"sinks": np.full_like(a["sinks"], -np.inf)}


class AlibiOfEightHeads(Attention):
    """Has room for eight slopes: the ninth head uses the first one's."""

    witness = shown_by(attention, (6,), heads=9, alibi_slopes=np.linspace(0.1, 0.9, 9, dtype=np.float32))
    twin = shown_by(attention, (6,), heads=8, alibi_slopes=np.linspace(0.1, 0.9, 8, dtype=np.float32))

    def change(self, a: Arguments) -> Arguments:
        return {"alibi_slopes": a["alibi_slopes"][np.arange(a["q"].shape[1]) % 8]} if "alibi_slopes" in a else {}


class AlibiOfNegativeSlopes(Attention):
    """Uses the magnitude of a slope, whatever its sign."""

    witness = shown_by(attention, (6,), alibi_slopes=f32(-0.5))
    twin = shown_by(attention, (6,), alibi_slopes=f32(0.5))

    def change(self, a: Arguments) -> Arguments:
        return {"alibi_slopes": np.abs(a["alibi_slopes"])} if "alibi_slopes" in a else {}


class AlibiDistanceInHalf(Attention):
    """Keeps the distance that a slope multiplies in float16, which rounds distances beyond 2,048."""

    witness = shown_by(attention, (2051,), page_size=512, head=4, alibi_slopes=f32(-0.5))
    twin = shown_by(attention, (2048,), page_size=512, head=4, alibi_slopes=f32(-0.5))

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        def attended(*call: Any, slope: F | None, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
            positions, keep = call[3:]
            distance = (np.arange(keep.shape[1]) - positions[:, None]).astype(F)
            lost = F(0) if slope is None else slope * (distance.astype(np.float16).astype(F) - distance)
            with patch("samebits.ops.attention.soft_capped", lambda s, cap: soft_capped(s, cap) + lost):
                return attend(*call, slope=slope, **attrs)

        with patch("samebits.ops.attention.attend", attended):
            return super().kernel(op_name, arguments)


class SlopesOfTheFirstTile(Attention):
    """Adds slopes to the scores of a sequence's first 128 queries, a tile, and to no others."""

    witness = shown_by(attention, (130,), (129,), page_size=64, head=4, alibi_slopes=f32(0.5))
    twin = shown_by(attention, (130,), (128,), page_size=64, head=4, alibi_slopes=f32(0.5))

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        results = super().kernel(op_name, arguments)
        if "alibi_slopes" in arguments:
            plain = defined(op_name, {**arguments, "alibi_slopes": None})
            counts = np.diff(arguments["qo_indptr"])
            row = np.arange(counts.sum()) - np.repeat(arguments["qo_indptr"][:-1], counts)
            for result, other in zip(results, plain, strict=True):
                result[row >= 128] = other[row >= 128]
        return results


class CapLostWithSlopes(Attention):
    """Ignores the soft cap when slopes are given."""

    witness = shown_by(attention, (6,), alibi_slopes=f32(0.5), logits_soft_cap=1.0)
    twin = shown_by(attention, (6,), alibi_slopes=f32(0.5))

    def change(self, a: Arguments) -> Arguments:
        return {"logits_soft_cap": 0.0} if "alibi_slopes" in a else {}


class LseOfNothingIsZero(Attention):
    """Gives 0 as the log-sum-exp of a query that sees nothing."""

    witness = shown_by(attention, (4,), custom_mask=np.zeros(4, bool), return_lse=True)
    twin = shown_by(attention, (4,), custom_mask=mask_of(4), return_lse=True)

    def spoil(self, a: Arguments, results: Results) -> None:
        if len(results) > 1:
            results[1][np.isneginf(results[1])] = 0


class LseWithoutSink(Attention):
    """Stores the log-sum-exp before the sink is added."""

    witness = shown_by(attention, (4,), sinks=f32(1), return_lse=True)
    twin = shown_by(attention, (4,), sinks=f32(-np.inf), return_lse=True)

    def spoil(self, a: Arguments, results: Results) -> None:
        if len(results) > 1:
            results[1][:] = defined("paged_attention", {**a, "sinks": None})[1]


class LseInTheFormatOfQ(Attention):
    """Rounds the log-sum-exp to the 16 bits of the output's format."""

    witness = shown_by(attention, (4,), q="f16", return_lse=True)
    twin = shown_by(attention, (4,), return_lse=True)

    def spoil(self, a: Arguments, results: Results) -> None:
        if len(results) > 1:
            results[1][:] = widen(results[1].astype(a["q"].dtype))


class MaskedRowIsAverage(Attention):
    """Masks with -10,000: a query that sees nothing gets the average of what it must not see."""

    witness = shown_by(attention, (4,), custom_mask=np.zeros(4, bool))
    twin = shown_by(attention, (4,), custom_mask=mask_of(4))

    def spoil(self, a: Arguments, results: Results) -> None:
        out, lse = defined("paged_attention", {**a, "return_lse": True})
        nothing = np.isneginf(lse)
        if nothing.any() and "custom_mask" in a:
            everything = {"custom_mask": None, "sm_scale": 0.0, "alibi_slopes": None, "sinks": None}
            seen = defined("paged_attention", {**a, **everything, "return_lse": False})[0]
            results[0][:] = np.where(nothing[..., None], seen, out)


class ProbabilitiesInTheTypeOfK(Attention):
    """Rounds probabilities to the keys' type, also where the values have another type."""

    witness = shown_by(attention, (9,), k="f32", v="f16")
    twin = shown_by(attention, (9,), k="f16", v="f16")

    def change(self, a: Arguments) -> Arguments:
        k, v = a["k_cache"], a.get("v_cache")
        mixed = isinstance(k, np.ndarray) and isinstance(v, np.ndarray) and k.dtype == F and v.dtype != F
        return {"v_cache": widen(v)} if mixed else {}


class QueryUnroundedForF16Keys(Attention):
    """Keeps the query in float32 for float16 keys, where the definition rounds it."""

    witness = shown_by(attention, (9,), k="f16", v="f16")
    twin = shown_by(attention, (9,), k="f16", v="f16", q="f16")

    def change(self, a: Arguments) -> Arguments:
        k = a["k_cache"]
        return {"k_cache": widen(k)} if isinstance(k, np.ndarray) and k.ndim == 4 and k.dtype == np.float16 else {}


class ValueScaleOfFirstBlock(Attention):
    """Uses the first block's scale for all blocks of a quantized value head."""

    witness = shown_by(attention, (5,), head=64, k="q8_0", v="q8_0")
    twin = shown_by(attention, (5,), head=32, k="q8_0", v="q8_0")

    def change(self, a: Arguments) -> Arguments:
        v: Any = a.get("v_cache")
        if not isinstance(v, Packed) or v.format.name != "q8_0":
            return {}
        data = v.data.reshape(*v.data.shape[:-1], -1, v.format.block_bytes).copy()
        data[..., 1:, :2] = data[..., :1, :2]
        return {"v_cache": Packed(v.format, data.reshape(v.data.shape), v.scale)}


def states(s_a: float, s_b: float, v_a: float = 1.0, heads: int = 1) -> Any:
    """merge_state of two constant states."""
    values = {"v_a": np.full((1, heads, 4), v_a, np.float32), "v_b": floats(1, heads, 4)}
    sums = {"s_a": np.full((1, heads), s_a, np.float32), "s_b": s_b * np.arange(1, heads + 1, dtype=np.float32)[None]}
    return call("merge_state", **values, **sums)


class EmptyStateTimesZero(Defect):
    """Multiplies the values of an empty state by 0 instead of leaving them out."""

    ops = ("merge_state",)
    witness = shown_by(states, -np.inf, 1.0, v_a=np.nan)
    twin = shown_by(states, -np.inf, 1.0)

    def spoil(self, a: Arguments, results: Results) -> None:
        for v, s in ((a["v_a"], a["s_a"]), (a["v_b"], a["s_b"])):
            leaks = np.isneginf(s)[..., None] & ~np.isfinite(widen(v))
            results[0][leaks] = np.nan


class TwoEmptyStates(Defect):
    """Subtracts -Inf from -Inf when both states are empty, which gives NaN."""

    ops = ("merge_state",)
    witness = shown_by(states, -np.inf, -np.inf)
    twin = shown_by(states, -np.inf, 1.0)

    def spoil(self, a: Arguments, results: Results) -> None:
        both = np.isneginf(a["s_a"]) & np.isneginf(a["s_b"])
        results[0][both] = np.nan
        results[1][both] = np.nan


class StateOfHeadBeforeNinth(Defect):
    """Has room for the sums of eight heads: the ninth uses the first one's."""

    ops = ("merge_state",)
    witness = shown_by(states, 0.5, 1.0, heads=9)
    twin = shown_by(states, 0.5, 1.0, heads=8)

    def change(self, a: Arguments) -> Arguments:
        return {"s_b": a["s_b"][:, np.arange(a["s_b"].shape[1]) % 8]}
