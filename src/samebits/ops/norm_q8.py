"""add_rms_norm_q8: what stands between two quantized products, from one's result to the other's int8 blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK
from samebits.ops.norm import EPS, EPS_VALUES, fused_add_rms_norm, residual_inputs
from samebits.ops.quantize import LARGEST_AMAX, quantize_q8
from samebits.ops.record import FLOATS, Case, Input, Result, define_op
from samebits.ops.sizes import MODELS
from samebits.ops.spaces import row_space

OP = "add_rms_norm_q8"


def _decompose(b: Any, x: Any, residual: Any, weight: Any, *, eps: float) -> tuple[Any, Any, Any]:
    y, total = b.fused_add_rms_norm(x, residual, weight, eps=eps)
    codes, scales = b.quantize_q8(y)
    return codes, scales, total


def _check(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float) -> None:
    """What quantize_q8 would refuse, before the residual is written."""
    y, _ = fused_add_rms_norm(x, residual.copy(), weight, eps=eps)
    if not (np.abs(y) <= LARGEST_AMAX).all():
        raise BadInput(OP, "x", "NaN, Inf or a magnitude above 2^80 in the normalised row", "finite values")


def _case(case_id: str, num_rows: int, width: int, formats: dict[str, str] | None = None) -> Case:
    return Case(case_id, {"...": (num_rows,), "NB": width // BLOCK}, {}, formats or {})


@define_op(
    inputs=[
        Input("x", "... 32*NB", FLOATS, "what the last layer adds"),
        Input("residual", "... 32*NB", FLOATS, "residual stream, updated in place", raw=True),
        Input("weight", "32*NB", FLOATS, "multiplies the normalised row"),
    ],
    attrs=[EPS],
    results=[
        Result("codes", "... 32*NB", "i8", "-127 .. 127"),
        Result("scales", "... NB", "f32", "one per block"),
        Result("new_residual", "... 32*NB", "=residual", "residual + x", alias_of="residual"),
    ],
    freedom="order of sums in float32; a code beyond a tie",
    cases=lambda: [
        *(_case(f"small-{f}", 3, 96, dict.fromkeys(("x", "residual", "weight"), f)) for f in FLOATS),
        _case("f32-residual-bf16-x", 3, 96, {"x": "bf16"}),
        _case("zero-rows", 0, 64),
        _case("many-rows", 40, 1024),
        _case("prompt-rows", 130, 512),
        *(_case(name, 4, m[0]) for name, m in MODELS.items()),
    ],
    invariant_axes=("...",),
    check=_check,
    make_inputs=residual_inputs,
    decompose=_decompose,
    space=lambda: row_space(
        inputs=("x", "residual", "weight"), width="NB", most=1024, attrs=EPS_VALUES, operations=BLOCK
    ),
    smallest=-123,
)
def add_rms_norm_q8(
    x: np.ndarray, residual: np.ndarray, weight: np.ndarray, *, eps: float = 1e-5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """quantize_q8(fused_add_rms_norm(x, residual, weight)), the residual updated in place."""
    y, total = fused_add_rms_norm(x, residual, weight, eps=eps)
    return *quantize_q8(y), total
