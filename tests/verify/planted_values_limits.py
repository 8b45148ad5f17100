"""Functions near their limits: softplus where it is nearly linear or nearly zero. See planted_values.py."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
from planted import F, Results
from planted_base import Arguments, Defect, shown_by
from planted_slots import RECURRENT, batch

from samebits.core.numerics.elementary import softplus


class OtherSoftplus(Defect):
    """The recurrence with another softplus."""

    ops = RECURRENT
    formula: Callable[[np.ndarray], np.ndarray]

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        module = "delta" if op_name == "gated_delta_rule" else "ssm"
        with patch(f"samebits.ops.{module}.softplus", type(self).formula):
            return super().kernel(op_name, arguments)


class SoftplusIsLinearPast8(OtherSoftplus):
    """Takes softplus beyond 8 for its argument, which it is only beyond some 17."""

    witness = shown_by(batch, "ssm_scan", "prompt", dt=9.0, dt_bias=0.0)
    twin = shown_by(batch, "ssm_scan", "prompt", dt=7.0, dt_bias=0.0)
    formula = staticmethod(lambda x: np.where(x > 8, x, softplus(x)).astype(F))


class SoftplusIsZeroBelowMinus8(OtherSoftplus):
    """Takes softplus below -8 for zero."""

    witness = shown_by(batch, "ssm_scan", "prompt", dt=-9.0, dt_bias=0.0)
    twin = shown_by(batch, "ssm_scan", "prompt", dt=-7.0, dt_bias=0.0)
    formula = staticmethod(lambda x: np.where(x < -8, F(0), softplus(x)).astype(F))
