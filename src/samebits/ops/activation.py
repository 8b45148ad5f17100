"""Gated activations on a row that holds the gate and the up projection side by side."""

from __future__ import annotations

import numpy as np

from samebits.core.numerics.elementary import erfc, sigmoid
from samebits.core.numerics.settling import settle
from samebits.ops.record import FLOATS, Attr, Case, Input, Result, define_op
from samebits.ops.sizes import MODELS
from samebits.ops.spaces import FINITE, distinct, row_space

F = np.float32
SQRT_2_OVER_PI = F(0.7978845608028654)
SQRT_HALF = F(0.7071067811865476)
WIDEST_GATE = 57_344  # more than 15 bits count, as in models of 400 billion weights
GATED = [Input("x", "... 2*H", FLOATS, "gate in the first half, up in the second")]


def _sizes(num_rows: int, half: int) -> dict[str, object]:
    return {"...": (num_rows,), "H": half}


GATED_CASES = [
    *(Case(f"small-{f}", _sizes(3, 48), {}, {"x": f}) for f in FLOATS),
    *(Case(f"special-{f}", _sizes(4, 41), {}, {"x": f}, extra={"special": True}) for f in FLOATS),
    Case("one-element", _sizes(2, 1)),
    Case("zero-rows", _sizes(0, 32)),
    *(Case(name, _sizes(4, m[1])) for name, m in MODELS.items()),
    Case("prefill-llama-7b", _sizes(256, 11008), full=True),
]


@define_op(
    inputs=GATED,
    results=[Result("y", "... H", "=x")],
    freedom="the device's elementary functions",
    cases=lambda: GATED_CASES,
    invariant_axes=("...",),
    space=lambda: row_space(
        width="H", most=32_768, widest=WIDEST_GATE, values=(*FINITE, "extreme", "tails"), operations=3
    ),
    smallest=-101,
)
def silu_and_mul(x: np.ndarray) -> np.ndarray:
    """(gate * sigmoid(gate)) * up."""
    gate, up = np.split(x, 2, axis=-1)
    return settle((gate * sigmoid(gate)) * up)


def _form(name: str) -> str | None:
    return None if name in ("tanh", "erf") else "'tanh' or 'erf'"


@define_op(
    aliases=("gelu_tanh_and_mul",),
    inputs=GATED,
    attrs=[Attr("form", str, "tanh", "'tanh' (Gemma) or 'erf'", _form)],
    results=[Result("y", "... H", "=x")],
    freedom="the device's elementary functions; half the gate times 1 + tanh or 1 + erf",
    cases=lambda: [
        *GATED_CASES,
        *(Case(f"erf-{f}", _sizes(3, 48), {"form": "erf"}, {"x": f}) for f in FLOATS),
    ],
    invariant_axes=("...",),
    space=lambda: row_space(
        width="H",
        most=32_768,
        widest=WIDEST_GATE,
        values=(*FINITE, "extreme", "tails"),
        attrs=distinct({"form": ("tanh", "erf")}),
        crossed=(("form", "values"),),
        operations=3,
    ),
    smallest=-115,
)
def gelu_and_mul(x: np.ndarray, *, form: str = "tanh") -> np.ndarray:
    """gelu(gate) * up.

    tanh: gate * sigmoid(2u), u = sqrt(2/pi) * (gate + 0.044715 * gate^3), which is 0.5 * gate * (1 + tanh u).
    erf: (0.5 * gate) * erfc(-gate * sqrt(1/2)).
    """
    gate, up = np.split(x, 2, axis=-1)
    if form == "tanh":
        cube = settle(gate * gate) * gate
        u = SQRT_2_OVER_PI * (gate + F(0.044715) * cube)
        return settle((gate * sigmoid(u + u)) * up)
    return settle(((F(0.5) * gate) * erfc(-(gate * SQRT_HALF))) * up)


def _limit(value: float) -> str | None:
    return None if 2.0**-24 <= value <= 2.0**24 else "2^-24 .. 2^24"


NO_LIMIT = str(2.0**24)
ALPHA = Attr("alpha", float, 1.702, "multiplies the gate inside the sigmoid", _limit)
LIMIT = Attr("limit", float, 7.0, "the gate's largest value, and the largest magnitude of up", _limit)


@define_op(
    inputs=GATED,
    attrs=[ALPHA, LIMIT],
    results=[Result("y", "... H", "=x")],
    freedom="the device's elementary functions",
    cases=lambda: [
        *GATED_CASES,
        Case("beyond-limits", _sizes(4, 64), {"limit": 0.5}),
        Case("gpt-oss-20b", _sizes(4, 2880)),
    ],
    invariant_axes=("...",),
    space=lambda: row_space(
        width="H",
        most=32_768,
        widest=WIDEST_GATE,
        values=(*FINITE, "extreme", "tails", "nan"),
        attrs=distinct({"alpha": (1.702, 1.0, 30.0), "limit": (7.0, 0.3, 2.0**24)}),
        fits=lambda row: row.get("values") != "beyond" or row.get("limit", NO_LIMIT) == NO_LIMIT,  # else all is clamped
        crossed=(("alpha", "limit"),),
        operations=3,
    ),
    smallest=-124,
)
def clamped_swiglu(x: np.ndarray, *, alpha: float = 1.702, limit: float = 7.0) -> np.ndarray:
    """(up + 1) * (gate * sigmoid(alpha * gate)), gate at most limit, up within -limit .. limit; NaN stays NaN."""
    gate, up = np.split(x, 2, axis=-1)
    gate = np.minimum(gate, F(limit))
    up = np.minimum(np.maximum(up, F(-limit)), F(limit))
    return settle((up + F(1)) * (gate * sigmoid(settle(gate * F(alpha)))))
