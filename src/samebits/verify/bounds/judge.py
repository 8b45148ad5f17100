"""Which elements of a call's results are wrong at `fast`."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from samebits.core.format import HostTensor
from samebits.ops import Bound
from samebits.ops.equivalents import Equivalent
from samebits.verify.bounds.expectations import expectations
from samebits.verify.bounds.expected import Expected

Results = tuple[HostTensor, ...]


class Judge:
    """Judges results of one call. The expectations cost about what the definition does, and are made when needed.

    bound  the call; its inputs must stay as they were before it
    want   the definition's results
    """

    def __init__(self, bound: Bound, want: Results) -> None:
        self.want = want
        self._bound = bound

    @cached_property
    def expected(self) -> tuple[Expected, ...]:
        return expectations(self._bound, self.want)

    def outside(self, index: int, got: HostTensor) -> np.ndarray:
        """Return where result `index`, of the definition's shape, is not what was expected."""
        return self.expected[index].outside(got, self.want[index])

    def arranged(self, way: Equivalent) -> Arranged:
        """Return the judge of an equivalent call's results."""
        return Arranged(self, way)


class Arranged:
    """Judges the results of an equivalent call, which has the original's results in another arrangement."""

    def __init__(self, judge: Judge, way: Equivalent) -> None:
        self.want = way.expect(judge.want)
        self._judge, self._way = judge, way

    @cached_property
    def expected(self) -> tuple[Expected, ...]:
        parts = self._judge.expected
        values = self._way.expect(tuple(x.values for x in parts))
        errors = self._way.expect(tuple(x.error for x in parts))
        return tuple(Expected(np.asarray(v), np.asarray(e)) for v, e in zip(values, errors, strict=True))

    def outside(self, index: int, got: HostTensor) -> np.ndarray:
        """As Judge.outside."""
        return self.expected[index].outside(got, self.want[index])
