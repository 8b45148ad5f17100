"""Patterns on the DAG, and what the driver refuses whatever a rule says."""

from __future__ import annotations

import pytest

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, check_graph
from samebits.graph.patterns import AttrVar, GraphView, Pattern, PatternNode, same_attr
from samebits.graph.rewrite import apply_rules
from samebits.ops import OPS
from samebits.ops.build import OpBuilder, infer_specs
from samebits.passes.rules import fusion_rules, rule

ROWS = TensorSpec((Sym("T", 8), 16), "f32")
FUSE = fusion_rules(OPS["fused_add_rms_norm"])
TWICE = rule("scale twice", lambda p, x, *, f: p.scale(p.scale(x, factor=f), factor=f), lambda b, x, f: x)


def names(graph: Graph) -> list[str]:
    check_graph(graph, infer_specs)
    return [n.op.name for n in graph.nodes]


def start() -> tuple[OpBuilder, object, object]:
    b = OpBuilder()
    return b, b.input("x", ROWS), b.input("w", TensorSpec((16,), "f32"), "weight")


def test_an_attribute_variable_is_the_same_everywhere():
    b, x, _ = start()
    equal = b.scale(b.scale(x, factor=2.0), factor=2.0)
    other = b.scale(b.scale(x, factor=2.0), factor=3.0)
    view = GraphView(b.finish(equal, other))
    assert view.match(TWICE.pattern, 1).attrs == {"f": 2.0}
    assert view.match(TWICE.pattern, 3) is None


def test_attributes_differ_where_bits_may():
    assert same_attr(1.0, 1.0)
    assert not same_attr(0.0, -0.0)
    assert not same_attr(1, True)
    assert not same_attr(1, 1.0)


def test_optional_inputs_must_be_absent_where_the_pattern_has_none():
    b, x, w = start()
    y = b.rms_norm(b.add(b.scale(x), b.mul(x, x)), w, w)
    assert names(apply_rules(b.finish(y), FUSE))[-1] == "rms_norm"


def test_a_variable_attribute_cannot_be_branched_on():
    with pytest.raises(TypeError, match="eps is a variable"):
        bool(AttrVar("eps"))


def test_a_pattern_hangs_together():
    loose = PatternNode("scale", {"x": "x"}, {"factor": 1.0}, ("a",))
    anchor = PatternNode("scale", {"x": "x"}, {"factor": 2.0}, ("b",))
    with pytest.raises(ValueError, match="not among what the anchor"):
        Pattern(("x",), (loose, anchor), ("b",))
    with pytest.raises(ValueError, match="outputs are of those"):
        Pattern(("x",), (anchor,), ("x",))


def test_interior_values_do_not_escape():
    b, x, w = start()
    product = b.gemm(x, b.input("A", TensorSpec((16, 16), "f32"), "weight"))
    y = b.add(product, w)
    fuse = fusion_rules(OPS["gemm"])
    assert names(apply_rules(b.finish(y), fuse)) == ["gemm"]
    assert names(apply_rules(b.finish(y, product), fuse)) == ["gemm", "add"]


def residual(b: OpBuilder, x, w, h):
    total = b.add(h, x)
    return b.rms_norm(total, w), total


def test_a_new_write_waits_for_the_last_reader():
    b, x, w = start()
    h = b.scale(x, factor=2.0)
    early = b.mul(h, h)
    y, total = residual(b, early, w, h)
    assert "fused_add_rms_norm" in names(apply_rules(b.finish(y, total), FUSE))
    late = b.mul(h, total)
    assert "fused_add_rms_norm" not in names(apply_rules(b.finish(y, late), FUSE))


@pytest.mark.parametrize("kept", ["input", "output"])
def test_inputs_and_outputs_of_the_graph_are_not_newly_overwritten(kept):
    b, x, w = start()
    h = x if kept == "input" else b.scale(x, factor=2.0)
    y, total = residual(b, b.mul(x, x), w, h)
    outputs = (y, total) if kept == "input" else (y, total, h)
    assert "fused_add_rms_norm" not in names(apply_rules(b.finish(*outputs), FUSE))


def test_a_pattern_output_read_before_the_anchor_is_left_alone():
    b, x, w = start()
    total = b.add(b.scale(x, factor=2.0), x)
    between = b.mul(total, total)
    graph = b.finish(b.rms_norm(total, w), between)
    assert names(apply_rules(graph, FUSE)) == ["scale", "add", "mul", "rms_norm"]


SAME = rule("scale by 1", lambda p, x: p.scale(x, factor=1.0), lambda b, x: x)
LEFT = rule(
    "left of concat",
    lambda p, a, c: p.slice_columns(p.concat_columns(a, c), start=0, stop=16),
    lambda b, a, c: b.scale(a, factor=1.0),
)


def test_two_values_do_not_become_one_that_is_overwritten():
    b, x, w = start()
    h = b.mul(x, x)
    y, total = b.fused_add_rms_norm(x, b.scale(h, factor=1.0), w)
    graph = b.finish(y, total, h)
    assert names(apply_rules(graph, [SAME])) == ["mul", "scale", "fused_add_rms_norm"]


def test_a_value_that_took_over_another_has_its_readers_too():
    b, x, w = start()
    h = b.mul(x, x)
    same = b.scale(h, factor=1.0)
    y, total = residual(b, x, w, h)
    graph = b.finish(y, total, b.add(same, y))
    assert names(apply_rules(graph, [SAME, *FUSE])) == ["mul", "add", "rms_norm", "add"]


def test_an_overwritten_value_is_not_read_more_directly():
    b, x, w = start()
    h = b.mul(x, x)
    both = b.concat_columns(h, x)
    y, total = b.fused_add_rms_norm(x, h, w)
    graph = b.finish(y, total, b.slice_columns(both, start=0, stop=16))
    assert names(apply_rules(graph, [LEFT])) == ["mul", "concat_columns", "fused_add_rms_norm", "slice_columns"]


def test_a_match_through_nodes_that_were_just_replaced_waits():
    outward = rule(
        "scale after concat",
        lambda p, a, c: p.concat_columns(p.scale(a, factor=2.0), p.scale(c, factor=2.0)),
        lambda b, a, c: b.scale(b.concat_columns(a, c), factor=2.0),
        anchor_only=False,
    )
    b, x, _ = start()
    both = b.concat_columns(b.scale(x, factor=2.0), b.scale(b.mul(x, x), factor=2.0))
    graph = b.finish(b.slice_columns(both, start=0, stop=16))
    assert names(apply_rules(graph, [outward, LEFT])) == ["mul", "concat_columns", "scale", "slice_columns"]


def test_rules_that_undo_each_other_are_found():
    there = rule("there", lambda p, x: p.scale(x, factor=2.0), lambda b, x: b.scale(x, factor=3.0))
    back = rule("back", lambda p, x: p.scale(x, factor=3.0), lambda b, x: b.scale(x, factor=2.0))
    b, x, _ = start()
    with pytest.raises(RuntimeError, match=r"undo each other.*there, back"):
        apply_rules(b.finish(b.scale(x, factor=2.0)), [there, back])


def test_a_rule_that_changes_a_spec_is_refused():
    wrong = rule("wrong", lambda p, x: p.scale(x, factor=2.0), lambda b, x: b.cast(x, format="f16"))
    b, x, _ = start()
    assert names(apply_rules(b.finish(b.scale(x, factor=2.0)), [wrong])) == ["scale"]


def test_a_value_that_a_node_reads_twice_is_not_newly_overwritten():
    b, x, w = start()
    h = b.scale(x, factor=2.0)
    y, total = residual(b, h, w, h)
    assert names(apply_rules(b.finish(y, total), FUSE)) == ["scale", "add", "rms_norm"]


NORMS = {
    "read afterwards": lambda b, h, x, w: (b.fused_add_rms_norm(x, h, w), (b.mul(h, h),))[1],
    "a result": lambda b, h, x, w: (b.fused_add_rms_norm(x, h, w), (h,))[1],
}


@pytest.mark.parametrize("how", NORMS)
def test_what_a_rule_writes_over_is_not_used_after_that(how: str):
    def build(b, x, w):
        return NORMS[how](b, b.scale(x, factor=2.0), x, w)

    b, x, w = start()
    wrong = rule("writes too early", lambda p, x, w: p.mul(p.rms_norm(x, w), x), build, anchor_only=False)
    graph = b.finish(b.mul(b.rms_norm(x, w), x))
    assert names(apply_rules(graph, [wrong])) == ["rms_norm", "mul"]
