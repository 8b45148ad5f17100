"""The size of a case before its inputs are made: those of a model's layer take up to a second to draw and pack."""

from __future__ import annotations

from samebits.core.format import spec_bytes
from samebits.core.shapes import TensorSpec, build_shape
from samebits.ops.record import Case, Op


def weight_bytes(op: Op, case: Case) -> int:
    """Return the bytes of a case's weights, which its dims and formats state."""
    weights = [tensor for tensor in op.inputs if tensor.name in op.weights]
    return sum(
        spec_bytes(TensorSpec(build_shape(t.dims_choices[0], case.dims), case.formats.get(t.name, t.formats[0])))
        for t in weights
    )
