"""Memory that outlives a run, and how results are judged: what reruns and soak are made of."""

from __future__ import annotations

from collections.abc import Iterator
from types import EllipsisType

import numpy as np

from samebits.backends.interface import Backend, Buffer, View
from samebits.core.format import HostTensor, Packed
from samebits.core.shapes import TensorSpec
from samebits.ops import Bound
from samebits.verify.bounds import Judge
from samebits.verify.harness import GUARD_ROWS, filled, same_bytes
from samebits.verify.locate import axis_labels, first_difference, untouched_rows
from samebits.verify.model import Finding


class Memory:
    """A buffer with places for a tensor of up to `max_rows` rows; all of it that is not in use holds a pattern.

    A tensor without axes has no rows to lie among: it is the whole of its buffer.
    """

    def __init__(self, backend: Backend, name: str, spec: TensorSpec, max_rows: int, num_places: int) -> None:
        self.name, self._backend = name, backend
        self._stride = max_rows + GUARD_ROWS
        rows = GUARD_ROWS + num_places * self._stride
        self._whole = TensorSpec((rows, *spec.shape[1:]) if spec.shape else (), spec.format)
        self.base: Buffer = backend.alloc(self._whole)
        self.content = filled(self._whole, 0)  # what was put there last
        self._used: slice | EllipsisType = ...

    def fill(self, content: HostTensor | None, num_rows: int, place: int, pattern: int) -> Buffer | View:
        """Fills the buffer with the pattern and one place with the content; returns that place."""
        start = GUARD_ROWS + place * self._stride
        self.content = filled(self._whole, pattern)
        if self._whole.shape:
            self._used = slice(start, start + num_rows)
        self._put(content)
        self._backend.copy_in(self.base, self.content)
        if not self._whole.shape:
            return self.base
        return self._backend.view(self.base, ("slice", 0, start, start + num_rows))

    def _put(self, content: HostTensor | None) -> None:
        if isinstance(content, Packed) and isinstance(self.content, Packed):
            self.content.data[self._used] = content.data
            self.content = Packed(content.format, self.content.data, content.scale)
        elif isinstance(content, np.ndarray) and isinstance(self.content, np.ndarray):
            self.content[self._used] = content

    def expect(self, result: HostTensor) -> HostTensor:
        """What the whole buffer holds once the result was written over what was filled in."""
        self._put(result)
        return self.content

    def inspect(self, may_change: bool) -> tuple[HostTensor, list[Finding]]:
        """The tensor as it is now, and what its surroundings show."""
        after = self._backend.copy_out(self.base)
        findings = []
        for side, rows in self._edges():
            if not same_bytes(self.content[rows], after[rows]):
                findings.append(Finding("guard", f"{self.name}: bytes {side} the buffer were overwritten"))
        if not may_change and not same_bytes(self.content[self._used], after[self._used]):
            findings.append(Finding("input", f"{self.name}: the op changed an input it only reads"))
        return after[self._used], findings

    def _edges(self) -> Iterator[tuple[str, slice]]:
        if isinstance(self._used, slice):
            yield "before", slice(0, self._used.start)
            yield "after", slice(self._used.stop, None)


def num_rows(tensor: HostTensor) -> int:
    """Rows along the first axis; 1 for a tensor without axes."""
    return int(tensor.shape[0]) if tensor.ndim else 1


def difference(bound: Bound, judge: Judge, index: int, got: HostTensor, check: str) -> tuple[Finding | None, bool]:
    """Return (a finding of `check` for values that are not as expected, whether all bits are the definition's)."""
    op, want = bound.op, judge.want[index]
    result = op.active_results(bound.tensors, bound.attrs)[index]
    labels = axis_labels(op, op.results.index(result), len(want.shape), bound.attrs)
    untouched = untouched_rows(result, bound.tensors.get(result.alias_of or ""), want)
    where = first_difference(got, want, labels, untouched=untouched)
    if where is None:
        return None, True
    if got.shape == want.shape:
        far = judge.outside(index, got)
        if not far.any():
            return None, False
        where = first_difference(got, want, labels, far)
    return Finding(check, f"{result.name}: {where}"), False
