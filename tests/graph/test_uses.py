"""Whose memory a value lies in: one answer for passes, backends and debug."""

from __future__ import annotations

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph.uses import cache_values, memory_roots, state_values
from samebits.ops.build import OpBuilder

ROWS = TensorSpec((Sym("T", 8), 16), "f32")


def test_values_written_in_place_lead_to_the_first_in_their_memory() -> None:
    b = OpBuilder()
    x, w = b.input("x", ROWS), b.input("w", TensorSpec((16,), "f32"), "weight")
    given = b.input("given", ROWS, "cache")
    made = b.add(x, w)
    y, first = b.fused_add_rms_norm(x, made, w)
    z, second = b.fused_add_rms_norm(y, first, w)
    last, kept = b.fused_add_rms_norm(z, given, w)
    graph = b.finish(last, second, kept)
    roots = memory_roots(graph)
    assert {v.name for v in (made, first, second)} == {name for name, root in roots.items() if root == made.name}
    assert roots[kept.name] == "given"
    assert all(roots[v.name] == v.name for v in (x, w, y, z, last))
    assert state_values(graph) == {"x", "w", "given", kept.name}
    assert cache_values(graph) == {"given", kept.name}
