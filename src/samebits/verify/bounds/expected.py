"""What a result at `fast` is compared with: values, how far it may be from them, and what its format may round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samebits.core.format import HostTensor, format_of
from samebits.verify.bounds.near import SMALLEST, UNIT, Near
from samebits.verify.tolerance import as_numbers

SAFETY = 2.0  # times a bound: kernels of a device may round once more than the textbook's
# of each float format: half an ulp, relative; the step below its normal numbers; where rounding overflows
ROUNDING = {"f32": UNIT, "f16": 2.0**-11, "bf16": 2.0**-8}
LEAST_STEP = {"f32": SMALLEST, "f16": 2.0**-24, "bf16": SMALLEST}
OVERFLOW = {"f32": 2.0**128 * (1 - 2.0**-25), "f16": 65520.0, "bf16": 2.0**128 * (1 - 2.0**-9)}


@dataclass(frozen=True)
class Expected:
    """The expectation for one result: a value is right within `error`, the rounding of its format included.

    Both are float64 arrays in the shape of the result, or of its elements if it is in blocks.
    """

    values: np.ndarray
    error: np.ndarray

    def outside(self, got: HostTensor, want: HostTensor) -> np.ndarray:
        """Return where `got` is not what was expected; `want` is the definition's result.

        NaN must be where the definition has it. Infinity must be too, except that a value whose bound straddles the
        largest number of the format may overflow or not.
        """
        x, y = as_numbers(got), as_numbers(want)
        same = (np.isinf(x) & (x == y)) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore"):
            close = np.abs(x - self.values) <= self.error
            limit = OVERFLOW.get(format_of(want).name, np.inf)
            may_overflow = np.abs(np.abs(self.values) - limit) <= self.error
            on_one_side = (x * self.values > 0) & (y * self.values > 0)
        finite = np.isfinite(x) & np.isfinite(y)
        one_infinite = (np.isinf(x) & np.isfinite(y)) | (np.isinf(y) & np.isfinite(x))
        right: np.ndarray = same | (finite & close) | (one_infinite & may_overflow & on_one_side)
        return ~right


def exactly(want: HostTensor) -> Expected:
    """The definition's result and nothing else."""
    values = as_numbers(want)
    return Expected(values, np.zeros(values.shape))


def expected(x: Near, want: HostTensor) -> Expected:
    """x, rounded to the format of the definition's result `want`."""
    exact = as_numbers(want)
    fmt = format_of(want).name
    values = np.where(np.isfinite(x.value) & ~np.isnan(x.error), x.value, exact)
    error = SAFETY * np.where(np.isnan(x.error), 0.0, x.error)
    size = np.where(np.isfinite(values), np.abs(values), 0.0) + np.where(np.isfinite(error), error, 0.0)
    # either neighbour in a 16-bit format; float32 operations that a device rounds to either neighbour; settling
    rounding = ROUNDING[fmt] * size * (4.0 if fmt == "f32" else 2.0) + LEAST_STEP[fmt]
    return Expected(values, error + rounding)
