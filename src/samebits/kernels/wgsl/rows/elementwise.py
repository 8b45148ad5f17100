"""Element by element: add, mul, scale, sigmoid_and_mul, soft_cap."""

from __future__ import annotations

import numpy as np

from samebits.core.numerics.elementary import recip
from samebits.kernels.wgsl.lib.launch import Call, Dispatch, Operand
from samebits.kernels.wgsl.lib.registry import implements, only_f32
from samebits.kernels.wgsl.rows.elements import as_matrix, elementwise


def _two(kind: str, x: Operand, y: Operand, z: Operand) -> list[Dispatch]:
    """y has the shape of x, or is one row for all."""
    if len(y.shape) == len(x.shape):
        return elementwise(kind, as_matrix(x), as_matrix(y), as_matrix(z))
    return elementwise(kind, x, y, z)


@implements("add", when=only_f32("x", "y"))
def add(call: Call) -> list[Dispatch]:
    return _two("add", call.tensor("x"), call.tensor("y"), call.outputs[0])


@implements("mul", when=only_f32("x", "y"))
def mul(call: Call) -> list[Dispatch]:
    return _two("mul", call.tensor("x"), call.tensor("y"), call.outputs[0])


@implements("sigmoid_and_mul", when=only_f32("x", "gate"))
def sigmoid_and_mul(call: Call) -> list[Dispatch]:
    return _two("sigmoid_and_mul", call.tensor("x"), call.tensor("gate"), call.outputs[0])


@implements("scale", when=only_f32("x"))
def scale(call: Call) -> list[Dispatch]:
    factor = {"factor": float(call.attrs["factor"])}
    return elementwise("scale", as_matrix(call.tensor("x")), None, as_matrix(call.outputs[0]), factor)


@implements("soft_cap", when=only_f32("x"))
def soft_cap(call: Call) -> list[Dispatch]:
    x, y, cap = as_matrix(call.tensor("x")), as_matrix(call.outputs[0]), np.float32(call.attrs["cap"])
    if not cap:
        return elementwise("copy", x, None, y)
    return elementwise("soft_cap", x, None, y, {"cap": float(cap), "inv_cap": float(recip(cap.reshape(1))[0])})
