"""Products with stacked expert weights on activations that are int8 blocks already: one quantization per token.

expert_gemm(x, weight, ...) on block weights and float32 x is expert_gemm_q8(*quantize_q8(x), weight, ...), bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from samebits.core.format import BLOCK, Packed
from samebits.core.numerics.settling import settle
from samebits.ops.activation import ALPHA, LIMIT, clamped_swiglu, gelu_and_mul, silu_and_mul
from samebits.ops.expert_cases import expert_case, expert_inputs
from samebits.ops.expert_equivalents import expert_equivalents
from samebits.ops.expert_spaces import EXPERT_GATE_SPACE, EXPERT_Q8_SPACE
from samebits.ops.experts import PAIRS, SEGMENTS, active_bytes, product_env
from samebits.ops.gemm import int8_matmul
from samebits.ops.gemm_q8 import check_blocks
from samebits.ops.pairs import check_layout, for_experts, pairs_per_row
from samebits.ops.quantize import quantize_q8
from samebits.ops.record import BLOCK_WEIGHTS, FLOATS, Attr, Input, Result, define_op

BLOCKS = (
    Input("codes", "X 32*NB", ("i8",), "activations in int8 blocks of 32: a row per token, or one per pair"),
    Input("scales", "X NB", ("f32",), "one per block"),
)
ACTIVATIONS = ("silu", "gelu_tanh", "clamped")


def _operations(weight: Packed, pairs: np.ndarray, **_: Any) -> int:
    return 2 * len(pairs) * weight.shape[-2] * weight.shape[-1]


def _check_for(op: str) -> Callable[..., None]:
    """The check of an op on codes, scales and pairs, whose messages name the op."""

    def check(codes: np.ndarray, scales: np.ndarray, pairs: np.ndarray, seg_indptr: np.ndarray, **_: Any) -> None:
        check_blocks(op, codes, scales)
        check_layout(op, pairs, seg_indptr)

    return check


@define_op(
    inputs=[
        *BLOCKS,
        Input("weight", "E N 32*NB", BLOCK_WEIGHTS, "one matrix per expert", raw=True),
        PAIRS,
        SEGMENTS,
        Input("bias", "E N", FLOATS, "of each expert, added last", optional=True),
    ],
    results=[Result("y", "P N", "f32", "one row per pair, in order of pair numbers")],
    freedom="order of sums in float32; operands in float16",
    cases=lambda: [
        *(expert_case(f"small-{f}", 5, 2, 4, 24, 256, f) for f in BLOCK_WEIGHTS),
        *(expert_case(f"bias-{f}", 3, 2, 4, 16, 256, f, given=("bias",)) for f in ("q8_0", "q4_1")),
        expert_case("rows-per-pair", 4, 2, 4, 16, 64, "q4_0", rows="pair"),
        expert_case("tail-chunk", 3, 2, 4, 24, 576, "q8_0"),
        expert_case("one-token", 1, 2, 8, 40, 96, "q4_0"),
        expert_case("all-the-same", 20, 2, 4, 16, 64, "q8_0", chosen="same"),
        expert_case("no-tokens", 0, 2, 4, 16, 64, "q8_0"),
        expert_case("decode-8-experts", 1, 2, 8, 192, 1536, "q4_0", rows="pair"),
        expert_case("decode-8-wide-experts", 1, 2, 8, 576, 1536, "q4_0", rows="pair", full=True),
        expert_case("prefill-8-experts", 64, 2, 8, 576, 1536, "q4_0", rows="pair", full=True),
    ],
    invariant_axes=("X", "P"),
    check=_check_for("expert_gemm_q8"),
    make_inputs=expert_inputs,
    shape_env=product_env("expert_gemm_q8", "codes"),
    equivalents=expert_equivalents,
    operations=_operations,
    weight_bytes=active_bytes,
    space=lambda: EXPERT_Q8_SPACE,
    smallest=-123,
)
def expert_gemm_q8(
    codes: np.ndarray,
    scales: np.ndarray,
    weight: Packed,
    pairs: np.ndarray,
    seg_indptr: np.ndarray,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """expert_gemm on int8 blocks, with one exact integer sum per block of 32."""
    share = pairs_per_row(len(codes), len(pairs))
    blocks = codes.reshape(*scales.shape, BLOCK)
    y = np.zeros((len(pairs), weight.shape[1]), np.float32)
    for expert, mine in for_experts(pairs, seg_indptr):
        rows = mine // share
        product = settle(int8_matmul(blocks[rows], scales[rows], weight[expert].codes()))
        y[mine] = product if bias is None else settle(product + bias[expert])
    return y


def _activation(name: str) -> str | None:
    return None if name in ACTIVATIONS else " or ".join(map(repr, ACTIVATIONS))


def _gated(both: np.ndarray, activation: str, alpha: float, limit: float) -> np.ndarray:
    if activation == "clamped":
        return clamped_swiglu(both, alpha=alpha, limit=limit)
    return silu_and_mul(both) if activation == "silu" else gelu_and_mul(both)


def _decompose(
    b: Any,
    codes: Any,
    scales: Any,
    weight: Any,
    pairs: Any,
    seg_indptr: Any,
    bias: Any = None,
    *,
    activation: str = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
) -> Any:
    both = b.expert_gemm_q8(codes, scales, weight, pairs, seg_indptr, bias)
    if activation == "clamped":
        return b.quantize_q8(b.clamped_swiglu(both, alpha=alpha, limit=limit))
    return b.quantize_q8(b.silu_and_mul(both) if activation == "silu" else b.gelu_and_mul(both))


@define_op(
    inputs=[
        *BLOCKS,
        Input("weight", "E 64*HB 32*NB", BLOCK_WEIGHTS, "per expert: rows of the gate, then as many of up", raw=True),
        PAIRS,
        SEGMENTS,
        Input("bias", "E 64*HB", FLOATS, "of each expert, added to gate and up", optional=True),
    ],
    attrs=[
        Attr("activation", str, "silu", "silu_and_mul, gelu_and_mul or clamped_swiglu", _activation, ACTIVATIONS),
        ALPHA,
        LIMIT,
    ],
    results=[
        Result("y_codes", "P 32*HB", "i8", "-127 .. 127"),
        Result("y_scales", "P HB", "f32", "one per block"),
    ],
    freedom="order of sums in float32; operands in float16; a code beyond a tie",
    cases=lambda: [
        *(expert_case(f"small-{f}", 5, 2, 4, 128, 256, f) for f in BLOCK_WEIGHTS),
        *(expert_case(a, 3, 2, 4, 64, 64, "q4_0", attrs={"activation": a}) for a in ("gelu_tanh", "clamped")),
        expert_case("gpt-oss", 3, 2, 4, 64, 64, "q8_0", attrs={"activation": "clamped"}, given=("bias",)),
        expert_case("rows-per-pair", 4, 2, 4, 64, 64, "q4_0", rows="pair"),
        expert_case("one-token", 1, 2, 8, 192, 96, "q8_0"),
        expert_case("no-tokens", 0, 2, 4, 64, 64, "q8_0"),
        expert_case("decode-8-experts", 1, 2, 8, 512, 576, "q4_0"),
        expert_case("decode-8-wide-experts", 1, 2, 8, 3072, 576, "q4_0", full=True),
        expert_case("prefill-8-experts", 64, 2, 8, 3072, 576, "q4_0", full=True),
    ],
    invariant_axes=("X", "P"),
    check=_check_for("expert_gate_q8"),
    make_inputs=expert_inputs,
    shape_env=product_env("expert_gate_q8", "codes"),
    decompose=_decompose,
    equivalents=expert_equivalents,
    operations=_operations,
    weight_bytes=active_bytes,
    space=lambda: EXPERT_GATE_SPACE,
    smallest=-123,
)
def expert_gate_q8(
    codes: np.ndarray,
    scales: np.ndarray,
    weight: Packed,
    pairs: np.ndarray,
    seg_indptr: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    activation: str = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
) -> tuple[np.ndarray, np.ndarray]:
    """quantize_q8(act(expert_gemm_q8(...))); alpha and limit are those of clamped_swiglu."""
    both = expert_gemm_q8(codes, scales, weight, pairs, seg_indptr, bias)
    return quantize_q8(_gated(both, activation, alpha, limit))
