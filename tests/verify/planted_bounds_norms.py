"""Small errors at `fast` in sums that cancel. See planted_bounds.py."""

from __future__ import annotations

import numpy as np
from planted import F, Results
from planted_base import Arguments, shown_by
from planted_bounds import Fast
from planted_scenes import call, floats, rows_of


class VarianceInOnePass(Fast):
    """Takes the variance for the mean of squares less the square of the mean, in float32."""

    ops = ("layer_norm",)
    witness = shown_by(call, "layer_norm", x=floats(2, 64) + F(200))
    twin = shown_by(call, "layer_norm", x=np.zeros((2, 64), F))

    def spoil(self, a: Arguments, results: Results) -> None:
        x, y = rows_of(a["x"]).astype(F), rows_of(results[0])
        if not x.size or "bias" in a:
            return
        eps = F(a["eps"])
        with np.errstate(all="ignore"):
            mean = x.mean(axis=-1, keepdims=True)
            found = np.maximum((x * x).mean(axis=-1, keepdims=True) - mean * mean, F(0))
            right = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
            factor = np.sqrt((right + eps) / (found + eps))
            y[...] = np.where(np.isfinite(factor), y.astype(F) * factor, y.astype(F)).astype(y.dtype)
