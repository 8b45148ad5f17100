"""cast: another float format, rounded to nearest even."""

from __future__ import annotations

from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements
from samebits.kernels.wgsl.rows.elements import GROUP, as_matrix, elementwise


@implements("cast")
def cast(call: Call) -> list[Dispatch]:
    x, y = as_matrix(call.tensor("x")), call.outputs[0]
    if y.format == "f32":
        return elementwise("copy", x, None, as_matrix(y))
    num_rows, width = x.shape
    return [
        Dispatch(
            "rows/cast",
            (Binding("x", x), Binding("y", y, "write", "words")),
            linear(ceil_div(num_rows * width, 2 * GROUP)),
            consts={"GROUP": GROUP, "WIDTH": width, "TO_F16": y.format == "f16"},
            params={"count": num_rows * width},
        )
    ]
