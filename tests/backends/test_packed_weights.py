"""Weights rearranged at load give the bits of weights that are not, on the backend that packs on the host."""

from __future__ import annotations

import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.one_op import OneOp, weight_kinds
from samebits.core.tiers import Tier
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.verify.harness import same_bytes

ON_WEIGHTS = [op.name for op in OPS if op.weights]


@pytest.mark.parametrize("name", ON_WEIGHTS)
def test_packed_weights_give_the_reference_bits(name: str) -> None:
    op, backend, formats = OPS[name], CpuBackend(), set()
    for case in op.cases:
        if case.full:
            continue
        bound = bind(op, **make_inputs(op, case))
        packed = OneOp(backend, op, bound.specs, bound.attrs, Tier.PORTABLE, weight_kinds(op))
        buffers = packed.put(bound.tensors)
        packed.run()
        assert [name for name, buffer in buffers.items() if buffer.spec != bound.specs[name]] == list(op.weights)
        for i, want in enumerate(evaluate(bound)):
            assert same_bytes(packed.result(i), want), case.id
        formats.add(bound.specs[op.weights[0]].format)
    assert formats == set(op.format_axis.formats)
