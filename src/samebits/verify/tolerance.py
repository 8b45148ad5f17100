"""Whether a result lies within an op's tolerance of the reference's."""

from __future__ import annotations

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.ops import Bound
from samebits.ops.record import Tolerance

# Of a row of a graph's values where bits are not promised: what rounding in many nodes may move it, far below what a
# wrong value would. The few levels of a block format turn a small step into a larger one.
MOST_RELATIVE, MOST_RELATIVE_IN_BLOCKS = 2.0**-4, 2.0**-2


def as_numbers(x: HostTensor) -> np.ndarray:
    """float64 values of any host tensor."""
    with np.errstate(invalid="ignore"):  # a NaN of any pattern
        return (x.unpack() if isinstance(x, Packed) else x).astype(np.float64)


def steps_of(want: HostTensor, tolerance: Tolerance) -> np.ndarray | float:
    """What `steps` are worth: whole numbers for integers, the block's scale for codes, nothing for floats."""
    if not tolerance.steps:
        return 0.0
    if isinstance(want, Packed):
        codes = want.codes()
        return tolerance.steps * np.repeat(np.abs(codes.d).astype(np.float64), codes.q.shape[-1], axis=-1) * 1.001
    return float(tolerance.steps) if want.dtype.kind in "iu" else 0.0


def usual_sizes(bound: Bound) -> tuple[np.ndarray | float, ...]:
    """What the op's `usual_size` says of each result of a call, in its shape; 0 where it says nothing."""
    if bound.op.usual_size is None:
        return (0.0,) * len(bound.op.results)
    sizes = bound.op.usual_size(**bound.tensors, **bound.attrs)
    return sizes if isinstance(sizes, tuple) else (sizes,)


def outside(
    got: np.ndarray, want: np.ndarray, tolerance: Tolerance, steps: np.ndarray | float, usual: np.ndarray | float
) -> np.ndarray:
    """Where the rule of `Tolerance` is broken; places that are not finite must be equal."""
    finite = np.isfinite(want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    squares = np.where(finite, want, 0.0) ** 2
    size = np.sqrt(squares.mean(axis=-1, keepdims=True)) if want.ndim and want.shape[-1] else np.zeros(1)
    with np.errstate(invalid="ignore"):
        least = np.maximum(size, usual)
        bound = tolerance.absolute + tolerance.relative * np.maximum(np.abs(want), least) + steps
        close = np.abs(got - want) <= bound
    return ~np.where(finite, close, same)


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
