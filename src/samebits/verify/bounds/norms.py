"""Norms: a mean of squares in any order, a root, and a few products. A variance is that of centred values."""

from __future__ import annotations

import numpy as np

from samebits.core.numerics.rounding import narrow, widen
from samebits.verify.bounds.near import Near, rsqrt, sigmoid


def mean(x: Near) -> Near:
    width = x.value.shape[-1]
    return x.sum().settled() * Near.of(1.0 / width if width else 0.0).rounded()


def normalized(x: Near, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> Near:
    y = (x * rsqrt(mean(x * x).settled() + Near.of(np.float32(eps)))).settled()
    y = y if weight is None else y * Near.of(weight)
    return y if bias is None else y + Near.of(bias)


def rms_norm(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, eps: float
) -> tuple[Near]:
    return (normalized(Near.of(x), weight, bias, eps),)


def fused_add_rms_norm(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, *, eps: float) -> tuple[Near, Near]:
    """The row is normalised as the residual's format holds it, the sum of two floats being rounded once."""
    total = Near.of(widen(residual)) + Near.of(x)
    stored = widen(narrow((widen(residual) + x).astype(np.float32), residual.dtype))
    return normalized(Near.of(stored).settled(), weight, None, eps), total


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, eps: float
) -> tuple[Near]:
    centred = (Near.of(x) - mean(Near.of(x))).settled()
    return (normalized(centred, weight, bias, eps),)


def l2_norm(x: np.ndarray, *, eps: float) -> tuple[Near]:
    exact = Near.of(x)
    return (exact * rsqrt((exact * exact).sum().settled() + Near.of(np.float32(eps))),)


def gated_rms_norm(
    x: np.ndarray, gate: np.ndarray, weight: np.ndarray, *, eps: float, gate_first: bool, groups: int
) -> tuple[Near]:
    factor = (Near.of(gate) * sigmoid(Near.of(gate))).settled()
    start = (Near.of(x) * factor).settled() if gate_first else Near.of(x)
    parts = start.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    y = (normalized(parts, None, None, eps).reshape(*x.shape) * Near.of(weight)).settled()
    return (y if gate_first else y * factor,)
