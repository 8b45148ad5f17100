"""States in slots on the native backend: bad indices, threads that share keys of a ring, operands inside wider rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.one_op import OneOp, run_op
from samebits.core.errors import BadInput, Unavailable
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of
from samebits.ops.record import Case

try:
    native()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

DIMS = {
    "causal_conv": {"C": 40, "taps": 4, "J": 3},
    "gated_delta_rule": {"Hk": 1, "H": 8, "K": 24, "V": 20},
    "ssm_scan": {"G": 1, "H": 8, "S": 24, "P": 20},
}
WRONG: dict[str, tuple[str, Any]] = {
    "slots-negative": ("slots", [0, 1, -1, 3, 4]),
    "slots-large": ("slots", [0, 1, 2, 3, 8]),
    "slots-twice": ("slots", [0, 1, 2, 2, 4]),
    "positions-negative": ("positions", [-1]),
    "positions-gap": ("positions", [13, 15]),
    "qo_indptr-falls": ("qo_indptr", [0, 3, 2]),
    "qo_indptr-first": ("qo_indptr", [1]),
}


def inputs_of(op_name: str, batch: str) -> dict[str, Any]:
    return make_inputs(OPS[op_name], Case("slots", DIMS[op_name], {}, extra={"batch": batch}))


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("op_name", DIMS)
def test_bad_indices_are_refused_by_name(op_name: str, case: str) -> None:
    name, wrong = WRONG[case]
    bound = bind(OPS[op_name], **inputs_of(op_name, "ends"))
    np.asarray(bound.tensors[name])[: len(wrong)] = wrong  # after the check of the host
    with pytest.raises(BadInput, match=f"{op_name}: {name} (is|has) "):
        run_op(CpuBackend(), bound, Tier.PORTABLE)


def test_a_ring_of_another_width_is_refused() -> None:
    inputs = inputs_of("gated_delta_rule", "ends")
    inputs["ring"] = np.ascontiguousarray(inputs["ring"][..., :-1])
    op = OneOp(CpuBackend(), OPS["gated_delta_rule"], {n: spec_of(t) for n, t in inputs.items()}, {}, Tier.PORTABLE)
    op.put(inputs)
    with pytest.raises(BadInput, match="gated_delta_rule: ring has "):
        op.run()


@pytest.mark.parametrize("op_name", ["gated_delta_rule", "ssm_scan"])
def test_threads_that_share_keys_do_not_disturb_each_other(op_name: str) -> None:
    """Runs over a boundary read the ring's first rows and write them anew, while other heads still read them."""
    inputs = inputs_of(op_name, "ends")
    want = evaluate(bind(OPS[op_name], **{n: x.copy() for n, x in inputs.items()}))
    backend = CpuBackend()
    for count in (1, 2, 3, 5):
        backend.set_threads(count)
        got = run_op(backend, bind(OPS[op_name], **{n: x.copy() for n, x in inputs.items()}), Tier.PORTABLE)
        assert [np.asarray(a).tobytes() for a in got] == [np.asarray(b).tobytes() for b in want], f"{count} threads"


def test_operands_may_be_columns_of_a_wider_row() -> None:
    """q, k and v as a model cuts them from the rows of one product, without a copy."""
    op = OPS["gated_delta_rule"]
    inputs = inputs_of(op.name, "mixed")
    want = evaluate(bind(op, **{n: x.copy() for n, x in inputs.items()}))
    parts = {name: inputs.pop(name) for name in "qkv"}
    flat = [x.reshape(len(x), -1) for x in parts.values()]
    inputs["wide"] = np.concatenate(flat, axis=1)

    builder, at = OpBuilder(), 0
    values = {name: builder.input(name, TensorSpec(x.shape, spec_of(x).format)) for name, x in inputs.items()}
    wide = values.pop("wide")
    for (name, x), columns in zip(parts.items(), flat, strict=True):
        cut = builder.slice_columns(wide, start=at, stop=at + columns.shape[1])
        values[name] = builder.split_heads(cut, heads=x.shape[1])
        at += columns.shape[1]
    backend = CpuBackend()
    executable = backend.compile(builder.finish(*builder.gated_delta_rule(**values)), Tier.PORTABLE)
    for name, x in inputs.items():
        buffer = backend.alloc(spec_of(x))
        backend.copy_in(buffer, x)
        executable.bind(name, buffer)
    executable.run()
    got = [backend.copy_out(executable.output(i)) for i in range(3)]
    assert [np.asarray(a).tobytes() for a in got] == [np.asarray(b).tobytes() for b in want]
