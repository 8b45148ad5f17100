"""add_rms_norm_q8: a norm that leaves int8 blocks."""

from __future__ import annotations

from math import prod

from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements
from samebits.kernels.wgsl.rows.norm import narrow_enough, sum_consts

NOT_FINITE = fault("add_rms_norm_q8", "x", "NaN, Inf or a magnitude above 2^80 in the normalised row", "finite values")


@implements("add_rms_norm_q8", when=narrow_enough("x", "residual"))
def add_rms_norm_q8(call: Call) -> list[Dispatch]:
    x, (codes, scales, _) = call.tensor("x"), call.outputs
    width = x.shape[-1]
    if not width:
        return []
    sums = sum_consts(width)
    return [
        Dispatch(
            "rows/norm_q8",
            (
                Binding("x", x, view="fours"),
                Binding("residual", call.tensor("residual"), "write", "fours"),
                Binding("weight", call.tensor("weight"), view="fours"),
                Binding("codes", codes, "write", "words"),
                Binding("scales", scales, "write"),
            ),
            linear(ceil_div(x.num_rows, sums["ROWS"])),
            consts={**sums, "K": width, "INNER": prod(x.shape[1:-1])},
            params={"num_rows": x.num_rows, "eps": float(call.attrs["eps"]), "inv_k": 1.0 / width},
            faults={"NOT_FINITE": NOT_FINITE},
        )
    ]
