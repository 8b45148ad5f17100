"""How far one tensor is from another, and where they first differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.debug.labels import Label
from samebits.graph import Node
from samebits.ops import OPS
from samebits.verify.bounds import Judge
from samebits.verify.compare import max_ulp
from samebits.verify.locate import axis_labels, first_difference
from samebits.verify.tolerance import as_numbers


@dataclass(frozen=True)
class TensorDiff:
    """One result on backend B against A's. Numbers are over the places where both are finite.

    where       the first element whose bits differ, in words; None where all are equal
    relative    norm of the difference over the norm of A; None where A is all zeros
    one_sided   places that are finite on one side only
    is_close    whether B's values are within the op's bounds, if both results are of the same inputs; else true
    """

    label: str
    stage: str
    layer: int | None
    op: str
    where: str | None = None
    max_abs: float = 0.0
    max_ulp: int | None = 0
    relative: float | None = 0.0
    one_sided: int = 0
    is_close: bool = True

    @property
    def is_same(self) -> bool:
        return self.where is None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def tensor_diff(
    label: Label, node: Node, result: int, got: HostTensor, want: HostTensor, judge: Judge | None = None
) -> TensorDiff:
    """Compare B's tensor `got` with A's `want`; there are no numbers for a wrong shape.

    `judge` is that of the node's call, if A and B had the same inputs.
    """
    op = OPS[node.op.name]
    active = op.active_results(node.inputs, dict(node.attrs))
    axes = axis_labels(op, op.results.index(active[result]), len(want.shape), dict(node.attrs))
    where = first_difference(got, want, axes)
    names = (label.text, label.stage, label.layer, op.name)
    if where is None:
        return TensorDiff(*names)
    if got.shape != want.shape:
        return TensorDiff(*names, where, max_ulp=None, relative=None, is_close=False)
    x, y = as_numbers(got), as_numbers(want)
    both = np.isfinite(x) & np.isfinite(y)
    apart = np.abs(x[both] - y[both])
    signal, noise = float((y[both] ** 2).sum()), float((apart**2).sum())
    return TensorDiff(
        *names,
        where,
        max_abs=float(apart.max(initial=0.0)),
        max_ulp=max_ulp(got, want, both),
        relative=(noise / signal) ** 0.5 if signal else None,
        one_sided=int((np.isfinite(x) != np.isfinite(y)).sum()),
        is_close=judge is None or not judge.outside(result, got).any(),
    )
