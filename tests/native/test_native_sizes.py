"""Every native op with each of its sizes at 0 and at 1: the definition's bytes, or a refusal where it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_cases import calls

from samebits.backends.cpu import CpuBackend
from samebits.backends.one_op import OneOp, cache_kinds, weight_kinds
from samebits.core.errors import BadInput, Unavailable, Unsupported
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS, Bound, bind, evaluate, make_inputs
from samebits.ops.record import Op

try:
    NATIVE = [OPS[name] for name in native().ops(native().isas()[0])]
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)


def bytes_of(tensor: HostTensor) -> bytes:
    return np.ascontiguousarray(tensor.data if isinstance(tensor, Packed) else tensor).tobytes()


def reference(bound: Bound) -> list[bytes] | type[BadInput]:
    copies = {name: copy_tensor(t) for name, t in bound.tensors.items()}
    try:
        return [bytes_of(x) for x in evaluate(bind(bound.op, **copies, **bound.attrs))]
    except BadInput:
        return BadInput


def on_cpu(backend: CpuBackend, bound: Bound, kinds: dict[str, Any]) -> list[bytes] | type[BadInput] | None:
    """None where the backend says that it has no kernel."""
    try:
        op = OneOp(backend, bound.op, bound.specs, bound.attrs, Tier.PORTABLE, kinds)
        op.put({name: copy_tensor(t) for name, t in bound.tensors.items()})
        op.run()
        return [bytes_of(op.result(i)) for i in range(len(op.graph.outputs))]
    except BadInput:
        return BadInput
    except Unsupported:
        return None


@pytest.mark.parametrize("op", NATIVE, ids=lambda op: op.name)
def test_sizes_of_0_and_1(op: Op) -> None:
    backend, num_calls = CpuBackend(), 0
    backend.set_threads(3)
    for name, bound in calls(op):
        want = reference(bound)
        packed = {k: v for k, v in {**weight_kinds(op), **cache_kinds(op)}.items() if k in bound.tensors}
        for present in ({}, packed) if packed else ({},):
            got = on_cpu(backend, bound, present)
            assert got is None or got == want, f"{name}, {present}"
        num_calls += 1
    assert num_calls


def test_pairs_that_are_fewer_than_the_rows_they_read_are_refused() -> None:
    """Sizes of two symbols meet in a step only: no pair for rows, as for rows that are no divisor of the pairs."""
    op, backend = OPS["expert_gemm"], CpuBackend()
    backend.set_threads(2)
    weight = make_inputs(op, next(c for c in op.cases if c.id == "one-token"))["weight"]
    experts, _, width = weight.shape
    specs = {
        "x": TensorSpec((Sym("X", 64), width), "f32"),
        "weight": TensorSpec(weight.shape, weight.format.name),
        "pairs": TensorSpec((Sym("P", 64),), "i32"),
        "seg_indptr": TensorSpec((experts + 1,), "i32"),
    }
    one = OneOp(backend, op, specs, {}, Tier.PORTABLE)
    for num_rows, num_pairs in ((40, 0), (3, 2), (0, 2), (40, 1)):
        ends = np.full(experts + 1, num_pairs, np.int32)
        ends[0] = 0
        x, pairs = np.ones((num_rows, width), np.float32), np.arange(num_pairs, dtype=np.int32)
        one.put({"x": x, "weight": weight, "pairs": pairs, "seg_indptr": ends})
        with pytest.raises(BadInput, match="expert_gemm: pairs is no such pair, or no multiple"):
            one.run({"X": num_rows, "P": num_pairs})
    one.put({"x": x[:0], "weight": weight, "pairs": pairs[:0], "seg_indptr": 0 * ends})
    one.run({"X": 0, "P": 0})
