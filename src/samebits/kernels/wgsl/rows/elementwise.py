"""Element by element: add, mul, scale."""

from __future__ import annotations

from math import prod

from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements, only_f32

GROUP = 64  # invocations


def _elementwise(kind: str, x: Operand, y: Operand | None, z: Operand, factor: float = 1.0) -> list[Dispatch]:
    """z = kind(x, y): an invocation for each element."""
    width = prod(z.shape[1:])
    count = z.shape[0] * width if z.shape else 1
    bindings = (Binding("x", x), Binding("y", y), Binding("z", z, "write"))
    kinds = {f"IS_{name}": name == kind.upper() for name in ("ADD", "MUL", "SCALE")}
    return [
        Dispatch(
            "rows/elementwise",
            bindings,
            linear(ceil_div(count, GROUP)),
            consts={"GROUP": GROUP, "WIDTH": width, **kinds},
            params={"count": count, "factor": factor},
        )
    ]


@implements("add", when=only_f32("x", "y"))
def add(call: Call) -> list[Dispatch]:
    return _elementwise("add", call.tensor("x"), call.tensor("y"), call.outputs[0])


@implements("mul", when=only_f32("x", "y"))
def mul(call: Call) -> list[Dispatch]:
    return _elementwise("mul", call.tensor("x"), call.tensor("y"), call.outputs[0])


@implements("scale", when=only_f32("x"))
def scale(call: Call) -> list[Dispatch]:
    return _elementwise("scale", call.tensor("x"), None, call.outputs[0], float(call.attrs["factor"]))
