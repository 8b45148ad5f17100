"""Element by element: add, mul, scale, cast, sigmoid_and_mul."""

from __future__ import annotations

import numpy as np

from samebits.core.numerics.elementary import sigmoid
from samebits.core.numerics.settling import settle
from samebits.ops.record import FLOATS, Attr, Case, Input, Result, define_op, float_format
from samebits.ops.sizes import float_cases, rows
from samebits.ops.space import setting
from samebits.ops.spaces import FINITE, distinct, row_space

OTHER = ("... K", "K")
BINARY = [
    Input("x", "... K", FLOATS, "left operand"),
    Input("y", OTHER, FLOATS, "right operand, or one row for all"),
]
BINARY_CASES = [
    *float_cases("x", "y"),
    Case("one-row", rows(5, 64), extra={"y_dims": 1}),
    Case("empty", rows(0, 64)),
    Case("llama-7b", rows(128, 4096), full=True),
]
BINARY_SPACE = row_space(
    inputs=("x", "y"),
    values=(*FINITE, "edges", "nan"),
    others=(setting("y_rows", "all", "one"),),
    extra=lambda row: {"y_dims": int(row["y_rows"] == "one")},
    corners=("rows=2,axes=3,K=32768,x=f32,y=f16,values=spikes,y_rows=all",),  # more rows make a million elements of it
)


@define_op(
    inputs=BINARY,
    results=[Result("z", "... K", "=x")],
    freedom="one float32 rounding",
    cases=lambda: BINARY_CASES,
    invariant_axes=("...",),
    space=lambda: BINARY_SPACE,
    smallest=-73,
)
def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x + y."""
    return settle(x + y)


@define_op(
    inputs=BINARY,
    results=[Result("z", "... K", "=x")],
    freedom="one float32 rounding",
    cases=lambda: BINARY_CASES,
    invariant_axes=("...",),
    space=lambda: BINARY_SPACE,
    smallest=-100,
)
def mul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x * y."""
    return settle(x * y)


@define_op(
    inputs=[Input("x", "... K", FLOATS, "input")],
    attrs=[Attr("factor", float, 1.0, "rounded to float32 first")],
    results=[Result("y", "... K", "=x")],
    freedom="one float32 rounding",
    cases=lambda: [*float_cases("x", attrs={"factor": 0.125}), Case("gemma-2", rows(7, 2304), {"factor": 48.0})],
    invariant_axes=("...",),
    space=lambda: row_space(
        values=(*FINITE, "edges", "nan"), attrs=distinct({"factor": (0.125, 1.0, 0.0, -3.7, 48.0, 2.0**-50)})
    ),
    smallest=-100,
)
def scale(x: np.ndarray, *, factor: float = 1.0) -> np.ndarray:
    """x * factor."""
    return settle(x * np.float32(factor))


@define_op(
    inputs=[Input("x", "... K", FLOATS, "input")],
    attrs=[Attr("format", str, "f32", "the format to round to", float_format)],
    results=[Result("y", "... K", "@format")],
    cases=lambda: [
        Case(f"{src}-to-{dst}", rows(3, 96), {"format": dst}, {"x": src}) for src in FLOATS for dst in FLOATS
    ],
    invariant_axes=("...",),
    space=lambda: row_space(
        values=(*FINITE, "edges", "infinite", "nan"),
        attrs=distinct({"format": FLOATS}),
        crossed=(("x", "values", "format"),),
    ),
)
def cast(x: np.ndarray, *, format: str = "f32") -> np.ndarray:
    """x in another float format, rounded to nearest even."""
    return x.copy()  # a result never shares memory with an input it does not alias


@define_op(
    inputs=[Input("x", "... K", FLOATS, "what is gated"), Input("gate", "... K", FLOATS, "its sigmoid multiplies")],
    results=[Result("y", "... K", "=x")],
    freedom="the device's elementary functions",
    cases=lambda: [*float_cases("x", "gate"), Case("empty", rows(0, 64)), Case("qwen3-next", rows(5, 4096))],
    invariant_axes=("...",),
    space=lambda: row_space(inputs=("x", "gate"), values=(*FINITE, "extreme", "tails"), operations=2),
    smallest=-101,
)
def sigmoid_and_mul(x: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """x * sigmoid(gate)."""
    return settle(x * sigmoid(gate))
