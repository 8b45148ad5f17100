"""Weights rearranged at load, and caches in layouts of kernels, give the bits of plain ones, on the native backend."""

from __future__ import annotations

import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.one_op import OneOp, cache_kinds, weight_kinds
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


@pytest.mark.parametrize("name", ["paged_attention", "append_paged_kv_cache", "rope_and_append"])
def test_caches_as_a_model_has_them_give_the_reference_bits(name: str) -> None:
    op, backend, layouts = OPS[name], CpuBackend(), set()
    for case in op.cases:
        if case.full:
            continue
        bound = bind(op, **make_inputs(op, case))
        kept = OneOp(backend, op, bound.specs, bound.attrs, Tier.PORTABLE, cache_kinds(op))
        kept.put(bound.tensors)
        kept.run()
        layouts |= {kept.executable.layout(cache) for cache in op.caches if cache in bound.specs}
        for i, want in enumerate(evaluate(bound)):
            assert same_bytes(kept.result(i), want), case.id
    assert layouts == {"row-major", "k_lanes", "v_rows"}
