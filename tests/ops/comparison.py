"""Oracles by op name, the bound of each, and the distance between a result and its oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import oracles_cache
import oracles_experts
import oracles_recurrent
import oracles_sample
from op_helpers import copied, results_of
from oracles import Expect, wide

from samebits.core.format import HostTensor, format_of
from samebits.ops import OPS
from samebits.ops.record import Case, Op

MODULES = (oracles, oracles_cache, oracles_experts, oracles_recurrent, oracles_sample)
ORACLES = {op.name: next(getattr(m, op.name) for m in MODULES if hasattr(m, op.name)) for op in OPS}
MOVES = ("split_heads", "merge_heads", "slice_columns", "concat_columns")
# In float32 roundings (half ulps) of the unit each oracle states, beyond the rounding of the result's format.
# 1.5 to 2 times the worst of six seeds over all quick cases, so a wrong term of 1e-6 shows.
BOUNDS = {
    **dict.fromkeys(
        ("cast", "embedding", "convert_kv_layout", "append_paged_kv_cache", "copy_kv_pages", "copy_slots", *MOVES), 0.0
    ),  # values are moved
    **dict.fromkeys(("top_k", "top_k_mask_logits", "argmax", "sample", "expert_layout"), 0.0),  # values are chosen
    **dict.fromkeys(("add", "mul", "scale"), 1.0),  # one operation; 16-bit results round a second time
    "quantize_q8": 1.0,  # of the scale: amax * float32(1/127)
    "silu_and_mul": 4.0,  # of |y|: exp, recip and three products
    "gelu_and_mul": 5.0,  # of |y|, magnified by the exponent of its tail
    "rms_norm": 5.0,  # of |x * r * w| + |bias|: the mean square's sum counts half, rsqrt, three products
    "fused_add_rms_norm": 5.0,  # as rms_norm, on the residual as it is stored
    "add_rms_norm_q8": 5.0,  # of the scale: as fused_add_rms_norm, and the largest of 32
    "layer_norm": 4.0,  # of |y| + mean|x| / deviation: taking off the mean cancels
    "soft_cap": 8.0,  # of |y|: tanh by exp and recip, or a polynomial, and two products
    "softmax": 4.0,  # of y * (1 + |s| + |max|): exp turns an error of s into a relative one
    "rope": 3.0,  # of |a * cos| + |b * sin|: the table, two products, one sum
    "rope_and_append": 3.0,  # as rope, where the cache is float32; else the cache's own rounding
    "rope_both_and_append": 3.0,
    "gemm": 1.0,  # of sum |x * w|: errors of a long sum are independent, so they stay below one rounding
    "grouped_gemm": 1.0,
    "head_gemm": 1.0,
    "gemm_q8": 1.0,
    "gemm_silu_q8": 8.0,  # of the scale: a product of each half, silu, and the largest of 32
    "paged_attention": 2.0,  # of sum p * (1 + size of s) * |v| / l, and the same without v for the lse
    "sigmoid_and_mul": 4.0,  # of |y|: exp, recip and a product
    "l2_norm": 3.0,  # of |y|: half the sum of squares, rsqrt, a product
    "gated_rms_norm": 9.0,  # of |y|: as rms_norm, and silu
    "causal_conv": 4.0,  # of the terms' sizes: as many roundings as taps, silu
    "gated_delta_rule": 8.0,  # of the largest S in a column, as often as q or k reads it
    "ssm_scan": 7.0,
    "route": 4.0,  # of w * (1 + |logit|): as softmax or sigmoid, a sum and two products
    "clamped_swiglu": 4.0,  # of |y| * (1 + alpha * |gate|): as silu_and_mul
    "expert_gemm": 1.0,  # as gemm
    "expert_gemm_q8": 1.0,
    "expert_gate_q8": 8.0,  # of the scale: as gemm_silu_q8
    "combine": 3.0,  # of the terms' sizes: a product each, as many sums as ranks, a sigmoid
    "merge_state": 3.0,  # of the weighted sum of |v|, magnified by |s_a - s_b|
}
BELOW_SETTLED = 2.0**-49  # what settling a result or a factor may cost is not counted
FLOAT16_OVERFLOWS = 65520.0
HALF_ULP = {"f32": (2.0**-24, 2.0**-150), "f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}


def distance(got: HostTensor, want: Expect) -> np.ndarray:
    """|got - want| beyond slack and the result's own rounding, in float32 roundings of the unit."""
    g, w = wide(got), np.asarray(want.value, np.float64)
    if format_of(got).name == "f16":
        w = np.where(np.abs(w) >= FLOAT16_OVERFLOWS, np.copysign(np.inf, w), w)
    assert g.shape == w.shape, f"shape {g.shape}, the oracle's is {w.shape}"
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    relative, absolute = HALF_ULP.get(format_of(got).name, (0.0, 0.0))
    with np.errstate(invalid="ignore"):
        over = np.abs(g - w) - want.slack - (relative * np.abs(w) + absolute) - BELOW_SETTLED
    over = np.where(same, 0.0, np.where(np.isnan(over), np.inf, np.maximum(over, 0.0)))
    unit = np.broadcast_to(np.asarray(want.unit, np.float64), g.shape) * 2.0**-24
    return np.where(over == 0, 0.0, over / np.where(unit > 0, unit, 2.0**-1000))


def worst(op: Op, case: Case, inputs: dict[str, Any], called_with: dict[str, Any] | None = None) -> float:
    """Return the largest distance between the reference on `called_with` and the oracle on `inputs`."""
    return far_from_oracle(op, case, inputs, results_of(op, copied(called_with or inputs)))


def far_from_oracle(op: Op, case: Case, inputs: dict[str, Any], results: tuple[HostTensor, ...]) -> float:
    """Return the largest distance between results and the oracle on `inputs`, which stay as they are."""
    with np.errstate(over="ignore"):  # a naive sigmoid overflows to the right answer
        expected = ORACLES[op.name](copied(inputs), case)
    assert len(results) == len(expected)
    return max(float(distance(g, w).max(initial=0)) for g, w in zip(results, expected, strict=True))
