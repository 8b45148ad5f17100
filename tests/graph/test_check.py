"""check_graph accepts what is whole and names the node where something is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, Node, Value, check_graph
from samebits.graph.check import BadGraph
from samebits.ops import OPS
from samebits.ops.build import OpBuilder, infer_specs

ROWS = TensorSpec((Sym("T", 8), 16), "f32")


def small() -> Graph:
    b = OpBuilder()
    x, w = b.input("x", ROWS), b.input("w", TensorSpec((16,), "f32"), "weight")
    h = b.add(x, w)
    y, total = b.fused_add_rms_norm(b.scale(h, factor=2.0), h, w)
    return b.finish(y, total)


def changed(graph: Graph, index: int, **change: object) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **change)
    return replace(graph, nodes=tuple(nodes))


def test_a_whole_graph_passes():
    check_graph(small())
    check_graph(small(), infer_specs)


def test_use_before_definition():
    graph = small()
    turned = replace(graph, nodes=(graph.nodes[1], graph.nodes[0], graph.nodes[2]))
    with pytest.raises(BadGraph, match=r"node 0, %scale.1 = .*: x: %add.0 is not defined here"):
        check_graph(turned)


def test_second_definition():
    graph = small()
    with pytest.raises(BadGraph, match=r"node 1, .*%add.0 is defined a second time"):
        check_graph(changed(graph, 1, outputs=graph.nodes[0].outputs))


def test_use_with_another_spec():
    graph = small()
    other = Value("add.0", TensorSpec((4, 16), "f32"))
    with pytest.raises(BadGraph, match=r"node 1, .*%add.0 is f32\[T, 16\], used as f32\[4, 16\]"):
        check_graph(changed(graph, 1, inputs={"x": other}))


def test_result_of_another_spec_than_the_op_gives():
    graph = small()
    wrong = (Value("scale.1", TensorSpec((Sym("T", 8), 16), "f16")),)
    bad = changed(graph, 1, outputs=wrong)
    bad = changed(bad, 2, inputs={**graph.nodes[2].inputs, "x": wrong[0]})
    with pytest.raises(BadGraph, match=r"node 1, .*results are f16\[T, 16\], the op gives f32\[T, 16\]"):
        check_graph(bad, infer_specs)


def test_arguments_that_the_record_refuses():
    graph = changed(small(), 1, attrs={"factor": "two"})
    with pytest.raises(BadGraph, match=r"node 1, .*scale: factor"):
        check_graph(graph, infer_specs)


def test_a_result_too_few_of_a_node_that_writes():
    graph = small()
    with pytest.raises(BadGraph, match=r"node 2, .*the op gives f32\[T, 16\], f32\[T, 16\]"):
        check_graph(changed(graph, 2, outputs=graph.nodes[2].outputs[:1]), infer_specs)


def test_read_after_write():
    graph = small()
    late = Node(OPS["scale"], {"x": graph.nodes[0].outputs[0]}, {"factor": 3.0}, (Value("late", ROWS),))
    with pytest.raises(BadGraph, match=r"node 3, .*%add.0 was overwritten by node 2, .*fused_add_rms_norm"):
        check_graph(replace(graph, nodes=(*graph.nodes, late)))


def test_output_that_was_overwritten():
    graph = small()
    with pytest.raises(BadGraph, match=r"the outputs: %add.0 was overwritten"):
        check_graph(replace(graph, outputs=(graph.nodes[0].outputs[0],)))


def test_write_to_a_weight_and_by_two_names():
    graph = small()
    weight = replace(graph, kinds={"w": "weight", "x": "weight"})
    with pytest.raises(BadGraph, match="writes the weight %x"):
        check_graph(changed(weight, 2, inputs={**graph.nodes[2].inputs, "residual": graph.inputs[0]}))
    same = dict.fromkeys(("x", "residual"), graph.nodes[0].outputs[0])
    with pytest.raises(BadGraph, match="by a second name"):
        check_graph(changed(graph, 2, inputs={**graph.nodes[2].inputs, **same}))


def test_undefined_output_and_kinds_of_nothing():
    graph = small()
    with pytest.raises(BadGraph, match="the outputs: %nothing is not defined"):
        check_graph(replace(graph, outputs=(Value("nothing", ROWS),)))
    with pytest.raises(BadGraph, match="kinds: %nothing is not an input"):
        check_graph(replace(graph, kinds={"nothing": "weight"}))
    with pytest.raises(BadGraph, match="joined: %x must be a weight"):
        check_graph(replace(graph, joined={"x": ("a", "b")}))
