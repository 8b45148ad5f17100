"""quantize_q8: rows in int8 blocks of 32."""

from __future__ import annotations

from math import prod

from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements, only_f32

GROUP = 32  # blocks
NOT_FINITE = fault("quantize_q8", "x", "NaN, Inf or a magnitude above 2^80", "finite values")


@implements("quantize_q8", when=only_f32("x"))
def quantize_q8(call: Call) -> list[Dispatch]:
    x, (codes, scales) = call.tensor("x"), call.outputs
    num_blocks = x.shape[-1] // 32
    count = x.num_rows * num_blocks
    return [
        Dispatch(
            "rows/quantize",
            (
                Binding("x", x, view="fours"),
                Binding("codes", codes, "write", "words"),
                Binding("scales", scales, "write"),
            ),
            linear(ceil_div(count, GROUP)),
            consts={"GROUP": GROUP, "NB": num_blocks, "INNER": prod(x.shape[1:-1])},
            params={"count": count},
            faults={"NOT_FINITE": NOT_FINITE},
        )
    ]
