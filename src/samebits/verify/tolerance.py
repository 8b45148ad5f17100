"""Whether a value of a whole graph lies near the definition's. verify/bounds: a result of one op."""

from __future__ import annotations

import numpy as np

from samebits.core.format import HostTensor, Packed

# Of a row of a graph's values where bits are not promised: what rounding in many nodes may move it, far below what a
# wrong value would. The few levels of a block format turn a small step into a larger one.
MOST_RELATIVE, MOST_RELATIVE_IN_BLOCKS = 2.0**-4, 2.0**-2


def as_numbers(x: HostTensor) -> np.ndarray:
    """float64 values of any host tensor."""
    with np.errstate(invalid="ignore"):  # a NaN of any pattern
        return (x.unpack() if isinstance(x, Packed) else x).astype(np.float64)


def is_far(got: HostTensor, want: HostTensor) -> bool:
    """Return whether some row of a graph's value is further from the definition's than rounding in every node explains.

    What is not finite must be equal; a row is measured over its finite elements.
    """
    if got.shape != want.shape:
        return True
    x, y = as_numbers(got), as_numbers(want)
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(x[finite]).all():
        return True
    x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
    apart, size = (np.sqrt((a**2).sum(axis=-1)) for a in (x - y, y))
    usual = float(size.mean()) if size.size else 0.0
    most = MOST_RELATIVE_IN_BLOCKS if isinstance(want, Packed) else MOST_RELATIVE
    return bool((apart > most * np.maximum(size, usual)).any())
