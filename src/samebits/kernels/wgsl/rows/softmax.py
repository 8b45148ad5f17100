"""softmax over the last axis."""

from __future__ import annotations

from math import prod

import numpy as np

from samebits.core.numerics.elementary import recip
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements
from samebits.kernels.wgsl.rows.norm import narrow_enough, sum_consts

BAD_X = fault("softmax", "x", "NaN or +Inf, in x or in x * scale", "finite values or -Inf")
BAD_SINKS = fault("softmax", "sinks", "NaN or +Inf", "finite values or -Inf")


@implements("softmax", when=narrow_enough("x"))
def softmax(call: Call) -> list[Dispatch]:
    x, mask = call.tensor("x"), call.optional("mask")
    width = x.shape[-1]
    if not width:
        return []
    cap, sums = np.float32(call.attrs["soft_cap"]), sum_consts(width)
    return [
        Dispatch(
            "rows/softmax",
            (
                Binding("x", x),
                Binding("mask", mask),
                Binding("sinks", call.optional("sinks")),
                Binding("y", call.outputs[0], "write"),
            ),
            linear(ceil_div(x.num_rows, sums["ROWS"])),
            consts={
                **sums,
                "K": width,
                "INNER": prod(x.shape[1:-1]),
                "MASK_IS_ROW": mask is not None and len(mask.shape) < len(x.shape),
                "HAS_CAP": bool(cap),
            },
            params={
                "num_rows": x.num_rows,
                "scale": float(call.attrs["scale"]),
                "cap": float(cap),
                "inv_cap": float(recip(cap.reshape(1))[0]) if cap else 0.0,
            },
            faults={"BAD_X": BAD_X, "BAD_SINKS": BAD_SINKS},
        )
    ]
