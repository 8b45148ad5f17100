"""Normalisation over the last axis: rms_norm, fused_add_rms_norm, layer_norm, l2_norm, gated_rms_norm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.elementary import rsqrt, sigmoid
from samebits.core.numerics.rounding import F16, narrow, widen
from samebits.core.numerics.settling import SMALLEST, settle
from samebits.core.numerics.sums import row_sum
from samebits.ops.cases import default_inputs
from samebits.ops.record import FLOATS, Attr, Case, Input, Op, Result, define_op, positive
from samebits.ops.sizes import MODELS, float_cases, rows
from samebits.ops.space import Row
from samebits.ops.spaces import distinct, row_space

F = np.float32
ALL = ("weight", "bias")


def _large_enough(x: float) -> str | None:
    return None if x >= SMALLEST else "2^-50 or more: a row of zeros needs it"


EPS = Attr("eps", float, 1e-5, "added to the mean square", _large_enough)
EPS_VALUES = distinct({"eps": (1e-5, 1e-6, 1e-12, 2.0**-50, 0.1)})
X = Input("x", "... K", FLOATS, "rows to normalise")
WEIGHT = Input("weight", "K", FLOATS, "multiplies the normalised row", optional=True)
BIAS = Input("bias", "K", FLOATS, "added last", optional=True)

NORM_CASES = [
    *(replace(case, given=("weight",)) for case in float_cases("x", "weight")),
    Case("plain", rows(4, 64)),
    Case("mul-add", rows(4, 64), given=ALL),
    Case("odd-width", rows(2, 257), given=("weight",)),
    Case("tiny-rows", rows(3, 96), extra={"magnitude": 1e-3}),  # eps outweighs the row
    Case("contrast", rows(3, 96), given=("weight",), extra={"values": "contrast"}),
    Case("one-element", rows(3, 1), given=("weight",)),
    Case("zero-rows", rows(0, 64), given=("weight",)),
    *(Case(name, rows(8, m[0]), {"eps": 1e-6}, given=("weight",)) for name, m in MODELS.items()),
    Case("prefill-llama-7b", rows(512, 4096), given=("weight",), full=True),
]


def mean(x: np.ndarray) -> np.ndarray:
    """The settled row-order sum over the last axis, times float32(1/K); keeps the axis."""
    width = x.shape[-1]
    return (settle(row_sum(x)) * F(1.0 / width if width else 0.0))[..., None]


def normalized(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, eps: float
) -> np.ndarray:
    """y = x * rsqrt(mean(x * x) + eps), settled; y * weight + bias, settled."""
    y = settle(x * rsqrt(mean(x * x) + F(eps)))
    if weight is not None:
        y = y * weight
    return settle(y if bias is None else y + bias)


@define_op(
    aliases=("rmsnorm",),
    inputs=[X, WEIGHT, BIAS],
    attrs=[EPS],
    results=[Result("y", "... K", "=x")],
    freedom="order of sums in float32",
    cases=lambda: NORM_CASES,
    invariant_axes=("...",),
    space=lambda: row_space(
        optional=ALL,
        attrs=EPS_VALUES,
        corners=("rows=3,axes=1,K=64,x=f32,weight=none,bias=bf16,values=tiny,eps=1e-05",),
        padded=512,
    ),
    smallest=-114,
)
def rms_norm(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, eps: float = 1e-5
) -> np.ndarray:
    """((x * rsqrt(mean(x * x) + eps)) * weight) + bias."""
    return normalized(x, weight, bias, eps=eps)


HALF_OF_F16 = 32640.0  # in bfloat16 too


def residual_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Return the inputs of a case. Beside a float16 residual, x and residual have half of its range at most: their sum
    must be finite."""
    inputs: dict[str, Any] = default_inputs(op, case, stream)
    if inputs["residual"].dtype == F16:
        for name in ("x", "residual"):
            clipped = np.clip(inputs[name].astype(np.float32), -HALF_OF_F16, HALF_OF_F16)
            inputs[name] = clipped.astype(inputs[name].dtype)
    return inputs


def _decompose_add_rms_norm(b: Any, x: Any, residual: Any, weight: Any, *, eps: float) -> tuple[Any, Any]:
    total = b.add(residual, x)
    return b.rms_norm(total, weight, eps=eps), total


@define_op(
    aliases=("fused_add_rmsnorm",),
    inputs=[
        Input("x", "... K", FLOATS, "what the last layer adds"),
        Input("residual", "... K", FLOATS, "residual stream, updated in place", raw=True),
        Input("weight", "K", FLOATS, "multiplies the normalised row"),
    ],
    attrs=[EPS],
    results=[
        Result("y", "... K", "=x"),
        Result("new_residual", "... K", "=residual", "residual + x", alias_of="residual"),
    ],
    freedom="order of sums in float32",
    cases=lambda: [
        *float_cases("x", "residual", "weight"),
        Case("f32-residual-bf16-x", rows(3, 96), {}, {"x": "bf16"}),
        *(Case(name, rows(8, m[0])) for name, m in MODELS.items()),
    ],
    invariant_axes=("...",),
    make_inputs=residual_inputs,
    decompose=_decompose_add_rms_norm,
    space=lambda: row_space(inputs=("x", "residual", "weight"), attrs=EPS_VALUES, padded=512),
    smallest=-114,
)
def fused_add_rms_norm(
    x: np.ndarray, residual: np.ndarray, weight: np.ndarray, *, eps: float = 1e-5
) -> tuple[np.ndarray, np.ndarray]:
    """residual += x, rounded to its format; y = rms_norm(residual) * weight."""
    residual[...] = narrow(settle(widen(residual) + x), residual.dtype)
    return rms_norm(widen(residual), weight, eps=eps), residual


@define_op(
    inputs=[X, WEIGHT, BIAS],
    attrs=[EPS],
    results=[Result("y", "... K", "=x")],
    freedom="order of sums in float32; the variance is that of centred values",
    cases=lambda: NORM_CASES,
    invariant_axes=("...",),
    space=lambda: row_space(
        optional=ALL,
        rare_values=("low",),  # a mean far from zero: its square takes the variance's last bits
        attrs=EPS_VALUES,
        corners=("values=low",),
        padded=512,
    ),
    smallest=-114,
)
def layer_norm(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, eps: float = 1e-5
) -> np.ndarray:
    """c = x - mean(x); ((c * rsqrt(mean(c * c) + eps)) * weight) + bias."""
    return normalized(settle(x - mean(x)), weight, bias, eps=eps)


@define_op(
    inputs=[X],
    attrs=[EPS],
    results=[Result("y", "... K", "=x")],
    freedom="order of sums in float32",
    cases=lambda: [
        *float_cases("x"),
        Case("tiny-rows", rows(3, 96), extra={"magnitude": 1e-3}),
        Case("zero-rows", rows(0, 64)),
    ],
    invariant_axes=("...",),
    space=lambda: row_space(attrs=EPS_VALUES, padded=512),
    smallest=-114,
)
def l2_norm(x: np.ndarray, *, eps: float = 1e-5) -> np.ndarray:
    """x * rsqrt(sum(x * x) + eps)."""
    return settle(x * rsqrt(settle(row_sum(x * x)) + F(eps))[..., None])


def _gate_cases() -> list[Case]:
    names = ("x", "gate", "weight")
    return [
        *float_cases(*names),
        Case("gate-first", rows(3, 96), {"gate_first": True}),
        Case("groups", rows(3, 96), {"gate_first": True, "groups": 4}),
        Case("qwen3-next", rows(32, 128), {"eps": 1e-6}),
        Case("nemotron-h", rows(2, 8192), {"gate_first": True, "groups": 8}),
    ]


def _gated_fits(row: Row) -> bool:
    """Whole groups, and a sum of squares that is finite also where the gate comes first."""
    is_whole = not {"K", "groups"} <= row.keys() or int(row["K"]) % int(row["groups"]) == 0
    return is_whole and not (row.get("values") == "vast" and row.get("gate_first") == "True")


def _check_groups(x: np.ndarray, groups: int, **_: Any) -> None:
    if groups < 1 or x.shape[-1] % groups:
        raise BadInput("gated_rms_norm", "groups", groups, f"a divisor of the width {x.shape[-1]}")


@define_op(
    inputs=[
        X,
        Input("gate", "... K", FLOATS, "its silu multiplies"),
        Input("weight", "K", FLOATS, "multiplies the normalised row"),
    ],
    attrs=[
        EPS,
        Attr("gate_first", bool, False, "whether the gate comes before the norm"),
        Attr("groups", int, 1, "equal parts of a row, each normalised by itself", positive),
    ],
    results=[Result("y", "... K", "=x")],
    freedom="order of sums in float32; the device's elementary functions",
    cases=lambda: _gate_cases(),
    invariant_axes=("...",),
    check=_check_groups,
    space=lambda: row_space(
        inputs=("x", "gate", "weight"),
        attrs={**EPS_VALUES, **distinct({"gate_first": (False, True), "groups": (1, 3, 8)})},
        fits=_gated_fits,
        operations=2,
        padded=512,
    ),
    smallest=-114,
)
def gated_rms_norm(
    x: np.ndarray,
    gate: np.ndarray,
    weight: np.ndarray,
    *,
    eps: float = 1e-5,
    gate_first: bool = False,
    groups: int = 1,
) -> np.ndarray:
    """rms_norm(x) * weight * silu(gate), or rms_norm(x * silu(gate)) * weight where the gate comes first."""
    factor = settle(gate * sigmoid(gate))
    parts = (settle(x * factor) if gate_first else x).reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    y = settle(normalized(parts, eps=eps).reshape(x.shape) * weight)
    return y if gate_first else settle(y * factor)
