"""Oracles by op name, the bound of each, and the distance between a result and its oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import oracles_cache
import oracles_sample
from op_helpers import copied, results_of
from oracles import Expect, wide

from samebits.core.format import HostTensor, format_of
from samebits.ops import OPS
from samebits.ops.record import Case, Op

ORACLES = {
    op.name: next(getattr(m, op.name) for m in (oracles, oracles_cache, oracles_sample) if hasattr(m, op.name))
    for op in OPS
}
BOUNDS = dict.fromkeys(ORACLES, 1e9)
HALF_ULP = {"f32": (2.0**-24, 2.0**-150), "f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}


def distance(got: HostTensor, want: Expect, exact: bool) -> np.ndarray:
    """|got - want| beyond slack and the result's own rounding, in float32 roundings of the unit."""
    g, w = wide(got), np.asarray(want.value, np.float64)
    assert g.shape == w.shape, f"shape {g.shape}, the oracle's is {w.shape}"
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    relative, absolute = HALF_ULP.get(format_of(got).name, (0.0, 0.0))
    with np.errstate(invalid="ignore"):
        over = np.abs(g - w) - want.slack - (0 if exact else relative * np.abs(w) + absolute)
    over = np.where(same, 0.0, np.where(np.isnan(over), np.inf, np.maximum(over, 0.0)))
    unit = np.broadcast_to(np.asarray(want.unit, np.float64), g.shape) * 2.0**-24
    return np.where(over == 0, 0.0, over / np.where(unit > 0, unit, 2.0**-1000))


def worst(op: Op, case: Case, inputs: dict[str, Any], called_with: dict[str, Any] | None = None) -> float:
    """The largest distance between the reference on `called_with` and the oracle on `inputs`."""
    expected = ORACLES[op.name](copied(inputs), case)
    results = results_of(op, copied(called_with or inputs))
    assert len(results) == len(expected)
    return max(float(distance(g, w, False).max(initial=0)) for g, w in zip(results, expected, strict=True))
