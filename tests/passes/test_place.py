"""Where nodes run, what is copied, and the reasons given; memory plans of either side."""

from __future__ import annotations

import pytest
from toy_llama import EVERYTHING, only, ops_of, toy_llama, without

from samebits.core.errors import Unsupported
from samebits.core.shapes import Sym, TensorSpec
from samebits.ops.build import OpBuilder
from samebits.passes import place, plan_memory, run_pipeline

ROWS = TensorSpec((Sym("T", 8), 64), "f32")


def test_all_on_the_device():
    graph = run_pipeline(toy_llama(), EVERYTHING)
    placement = place(graph, EVERYTHING)
    assert set(placement.places) == {"device"}
    assert placement.copies == placement.reasons == ()


def test_a_stateless_op_falls_back_with_its_reason_and_copies():
    b = OpBuilder()
    x, w = b.input("x", ROWS), b.input("w", TensorSpec((64,), "f32"), "weight")
    a = b.scale(x, factor=2.0)
    n = b.layer_norm(a, w)
    m = b.layer_norm(n, w)
    graph = b.finish(b.add(m, n), m)
    placement = place(graph, without("layer_norm"), only("layer_norm"))
    assert placement.places == ("device", "fallback", "fallback", "device")
    assert [(c.value, c.to, c.before, c.is_constant) for c in placement.copies] == [
        (a.name, "fallback", 1, False),
        ("w", "fallback", 1, True),
        (m.name, "device", 3, False),
        (n.name, "device", 3, False),
    ]
    assert placement.reasons == (
        "node 1, layer_norm: on the fallback: no kernel for layer_norm",
        "node 2, layer_norm: on the fallback: no kernel for layer_norm",
    )
    here, there = plan_memory(graph, placement), plan_memory(graph, placement, "fallback")
    assert set(here.offsets) == {a.name, m.name, n.name, graph.outputs[0].name}
    assert set(there.offsets) == {a.name, m.name, n.name, "w"}


def test_an_output_made_on_the_fallback_comes_back():
    b = OpBuilder()
    graph = b.finish(b.scale(b.input("x", ROWS), factor=2.0))
    [_, back] = place(graph, without("scale"), EVERYTHING).copies
    assert (back.to, back.before) == ("device", 1)


@pytest.mark.parametrize("op", ["append_paged_kv_cache", "paged_attention"])
def test_a_cache_op_without_a_kernel_is_an_error_that_names_it(op):
    supports = without(op, "rope_and_append")
    graph = run_pipeline(toy_llama(), supports)
    with pytest.raises(Unsupported, match=rf"= {op}\(.*no kernel for {op}; it works on the cache %"):
        place(graph, supports, EVERYTHING)


def test_a_fused_op_on_an_intermediate_may_fall_back():
    supports = without("fused_add_rms_norm")
    graph = run_pipeline(toy_llama(), EVERYTHING)
    placement = place(graph, supports, EVERYTHING)
    assert len(placement.reasons) == 4
    moved = [n for n, p in zip(ops_of(graph), placement.places, strict=True) if p == "fallback"]
    assert set(moved) == {"fused_add_rms_norm"}


def test_nowhere_to_run():
    graph = toy_llama()
    with pytest.raises(Unsupported, match=r"silu_and_mul.*there is no fallback"):
        place(graph, without("silu_and_mul"))
    with pytest.raises(Unsupported, match="no kernel for silu_and_mul; fallback: no kernel for silu_and_mul"):
        place(graph, without("silu_and_mul"), without("silu_and_mul"))
