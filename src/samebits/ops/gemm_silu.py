"""gemm_silu_q8: the first half of a gated feed-forward layer, from int8 blocks to int8 blocks.

Gate and up projections never reach memory as float32, and the next product finds its activations quantized.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import BLOCK, Packed
from samebits.ops.activation import silu_and_mul
from samebits.ops.gemm_q8 import BLOCKS, block_inputs, check_blocks, gemm_q8
from samebits.ops.gemm_spaces import GEMM_SILU_SPACE
from samebits.ops.quantize import quantize_q8
from samebits.ops.record import BLOCK_WEIGHTS, Case, Input, Result, define_op


def _decompose(b: Any, codes: Any, scales: Any, weight: Any) -> Any:
    return b.quantize_q8(b.silu_and_mul(b.gemm_q8(codes, scales, weight)))


def _check(codes: np.ndarray, scales: np.ndarray, weight: Packed) -> None:
    check_blocks("gemm_silu_q8", codes, scales)


def _case(case_id: str, t: int, half: int, k: int, fmt: str, **kw: Any) -> Case:
    return Case(case_id, {"T": t, "HB": half // BLOCK, "NB": k // BLOCK}, {}, {"weight": fmt}, **kw)


@define_op(
    inputs=[
        *BLOCKS,
        Input("weight", "64*HB 32*NB", BLOCK_WEIGHTS, "rows of the gate, then as many of the up projection", raw=True),
    ],
    results=[
        Result("y_codes", "T 32*HB", "i8", "-127 .. 127"),
        Result("y_scales", "T HB", "f32", "one per block"),
    ],
    freedom="order of sums in float32; operands in float16; a code beyond a tie",
    cases=lambda: [
        *(_case(f"small-{f}", 3, 64, 256, f) for f in BLOCK_WEIGHTS),
        _case("one-token", 1, 96, 64, "q8_0"),
        _case("tail-chunk", 5, 32, 576, "q4_0"),
        _case("no-tokens", 0, 32, 64, "q8_0"),
        _case("decode-smollm2-135m", 1, 1536, 576, "q4_1"),
        _case("prefill-smollm2-135m", 40, 1536, 576, "q4_1", full=True),
        _case("many-rows", 20, 4320, 256, "q4_0"),
        _case("more-rows", 40, 8480, 256, "q4_0"),
        _case("more-rows-and-tokens", 70, 8480, 256, "q4_k"),
        _case("prompt", 130, 128, 96, "q4_0"),
        _case("prompt-of-tiles", 200, 384, 256, "q4_k"),
    ],
    invariant_axes=("T",),
    check=_check,
    make_inputs=block_inputs,
    decompose=_decompose,
    operations=lambda codes, weight, **_: 2 * codes.shape[0] * weight.shape[-2] * weight.shape[-1],
    space=lambda: GEMM_SILU_SPACE,
    smallest=-123,
)
def gemm_silu_q8(codes: np.ndarray, scales: np.ndarray, weight: Packed) -> tuple[np.ndarray, np.ndarray]:
    """quantize_q8(silu_and_mul(gemm_q8(codes, scales, weight)))."""
    return quantize_q8(silu_and_mul(gemm_q8(codes, scales, weight)))
