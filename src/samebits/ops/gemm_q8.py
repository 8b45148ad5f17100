"""gemm_q8: a block-quantized matmul on activations that are int8 blocks already, so that several can share them.

gemm(x, weight, bias) on a block weight and float32 x is gemm_q8(*quantize_q8(x), weight, bias), bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.settling import settle
from samebits.ops.cases import default_inputs
from samebits.ops.gemm import int8_matmul
from samebits.ops.gemm_spaces import GEMM_Q8_SPACE
from samebits.ops.quantize import quantize_q8
from samebits.ops.record import BLOCK_WEIGHTS, FLOATS, Case, Input, Op, Result, define_op
from samebits.ops.values import contents

BLOCKS = (
    Input("codes", "T 32*NB", ("i8",), "activations in int8 blocks of 32"),
    Input("scales", "T NB", ("f32",), "one per block"),
)


def check_blocks(where: str, codes: np.ndarray, scales: np.ndarray) -> None:
    """BadInput for codes or scales that quantize_q8 does not make."""
    if (codes == -128).any():
        raise BadInput(where, "codes", -128, "-127 .. 127, as quantize_q8 makes them")
    if not np.isfinite(scales).all():
        raise BadInput(where, "scales", "NaN or Inf", "finite values")


def _check(codes: np.ndarray, scales: np.ndarray, weight: Packed, bias: np.ndarray | None) -> None:
    check_blocks("gemm_q8", codes, scales)


def _decompose_bias(b: Any, codes: Any, scales: Any, weight: Any, bias: Any = None) -> Any:
    y = b.gemm_q8(codes, scales, weight)
    return y if bias is None else b.add(y, bias)


def block_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Inputs of a case whose activations, codes and scales, are what quantize_q8 makes."""
    inputs = default_inputs(op, case, stream)
    shape = (case.dims["T"], BLOCK * case.dims["NB"])
    x = contents(case.extra.get("values", "normal"), stream.child("x"), shape, "f32")
    inputs["codes"], inputs["scales"] = quantize_q8(settle(x))
    return inputs


def _case(case_id: str, t: int, n: int, k: int, fmt: str, **kw: Any) -> Case:
    return Case(case_id, {"T": t, "N": n, "NB": k // BLOCK}, {}, {"weight": fmt}, **kw)


@define_op(
    inputs=[
        *BLOCKS,
        Input("weight", "N 32*NB", BLOCK_WEIGHTS, "one row per output", raw=True),
        Input("bias", "N", FLOATS, "added last", optional=True),
    ],
    results=[Result("y", "T N", "f32")],
    freedom="order of sums in float32; operands in float16",
    cases=lambda: [
        *(_case(f"small-{f}", 3, 40, 512, f) for f in BLOCK_WEIGHTS),
        *(_case(f"bias-{f}", 2, 16, 256, f, given=("bias",)) for f in ("q8_0", "q4_1")),
        _case("tail-chunk-q8_0", 3, 24, 576, "q8_0"),
        _case("no-tokens", 0, 24, 64, "q8_0"),
        _case("decode-smollm2-135m", 1, 1536, 576, "q4_1"),
        # so many rows that a GPU's programs walk over several parts of them
        _case("few-tokens-many-rows", 5, 16384, 512, "q4_0"),
        _case("some-tokens-many-rows", 40, 16384, 512, "q4_k"),
        _case("many-tokens-many-rows", 100, 8704, 128, "q5_0"),
        _case("some-tokens-more-rows", 40, 16960, 256, "q4_0"),
        _case("decode-llama-7b", 1, 11008, 4096, "q4_k", full=True),
    ],
    invariant_axes=("T",),
    check=_check,
    make_inputs=block_inputs,
    decompose=_decompose_bias,
    operations=lambda codes, weight, **_: 2 * codes.shape[0] * weight.shape[-2] * weight.shape[-1],
    space=lambda: GEMM_Q8_SPACE,
    smallest=-123,
)
def gemm_q8(codes: np.ndarray, scales: np.ndarray, weight: Packed, bias: np.ndarray | None = None) -> np.ndarray:
    """(codes * scales) @ weight^T + bias, with one exact integer sum per block of 32."""
    y = settle(int8_matmul(codes.reshape(*scales.shape, BLOCK), scales, weight.codes()))
    return y if bias is None else settle(y + bias)
