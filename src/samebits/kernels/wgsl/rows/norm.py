"""Norms over rows: rms_norm, fused_add_rms_norm."""

from __future__ import annotations

from math import prod

from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, linear
from samebits.kernels.wgsl.lib.registry import implements, only_f32

SLOTS = 16  # of a cut; an invocation each


@implements("rms_norm", when=only_f32("x"))
def rms_norm(call: Call) -> list[Dispatch]:
    x, y = call.tensor("x"), call.outputs[0]
    width = x.shape[-1]
    bindings = (
        Binding("x", x),
        Binding("weight", call.optional("weight")),
        Binding("bias", call.optional("bias")),
        Binding("y", y, "write"),
    )
    inner = prod(x.shape[1:-1])  # rows of a row of the first axis
    return [
        Dispatch(
            "rows/norm",
            bindings,
            linear(x.num_rows),
            consts={"K": width, "INNER": inner},
            params={"num_rows": x.num_rows, "eps": float(call.attrs["eps"]), "inv_k": 1.0 / width},
        )
    ]
