"""Products go through block formats in blocks of 32: a weight whose rows end inside one is refused, on every way in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits.api import functional as F
from samebits.backends.discovery import get
from samebits.backends.one_op import OneOp
from samebits.core.errors import BadInput, Unavailable
from samebits.core.tiers import Tier
from samebits.formats import NVFP4
from samebits.ops import OPS, call
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of
from samebits.ops.record import Op

PRODUCTS = [OPS[name] for name in ("gemm", "grouped_gemm", "head_gemm", "expert_gemm")]


def inputs(op: Op, width: int) -> dict[str, Any]:
    """Three tokens and NVFP4 weights of this width."""
    x, rows = np.ones((3, width), np.float32), np.ones((2, 5, width), np.float32)
    ends = np.array([0, 1, 3], np.int32)
    given: dict[str, dict[str, Any]] = {
        "gemm": {"x": x, "weight": NVFP4.pack(rows[0])},
        "grouped_gemm": {"x": x, "weight": NVFP4.pack(rows), "seg_indptr": ends},
        "head_gemm": {"x": np.ones((3, 2, width), np.float32), "weight": NVFP4.pack(rows)},
        "expert_gemm": {
            "x": x,
            "weight": NVFP4.pack(rows),
            "pairs": np.arange(3, dtype=np.int32),
            "seg_indptr": ends,
        },
    }
    return given[op.name]


def backends() -> list[str]:
    """Return the backends here that have these products."""
    try:
        get("cpu")
    except Unavailable:
        return ["reference"]
    return ["reference", "cpu"]


def refused(op: Op) -> Any:
    return pytest.raises(
        BadInput, match=rf"^{op.name}: weight has rows of 48 nvfp4 elements, but must have rows of a multiple"
    )


@pytest.mark.parametrize("op", PRODUCTS, ids=lambda op: op.name)
def test_a_call_is_refused_on_every_backend(op: Op) -> None:
    for name in backends():
        with refused(op):
            getattr(F, op.name)(**inputs(op, 48), backend=name, numerics="portable")
        whole = inputs(op, 64)
        assert getattr(F, op.name)(**whole, backend=name, numerics="portable").tobytes() == call(op, **whole).tobytes()


@pytest.mark.parametrize("op", PRODUCTS, ids=lambda op: op.name)
def test_a_graph_with_it_cannot_be_built(op: Op) -> None:
    tensors = inputs(op, 48)
    specs = {name: spec_of(tensor) for name, tensor in tensors.items()}
    found = get("reference")
    assert found.backend is not None
    with refused(op):
        OneOp(found.backend, op, specs, {}, Tier.PORTABLE)
    builder = OpBuilder()
    with refused(op):
        getattr(builder, op.name)(**{name: builder.input(name, spec) for name, spec in specs.items()})


def test_every_op_that_multiplies_by_a_weight_states_it() -> None:
    """Those on int8 blocks have whole ones by their shapes; a table's rows are taken as they are."""
    for op in OPS:
        for tensor in op.inputs:
            if tensor.is_weight:
                by_shape = all("32*" in dims for dims in tensor.dims_choices)
                assert tensor.in_blocks or by_shape or op.name == "embedding", op.name
