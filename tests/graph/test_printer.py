"""Graphs as text: one line a value, and a change in one layer renames nothing in another."""

from __future__ import annotations

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, diff_graphs, print_graph
from samebits.ops.build import OpBuilder


def layers(extra: int | None = None) -> Graph:
    """Three layers; layer `extra` holds a node more."""
    b = OpBuilder()
    h = b.input("x", TensorSpec((Sym("T", 8), 4), "f32"))
    for i in range(3):
        w = b.input(f"layers.{i}.norm", TensorSpec((4,), "f32"), "weight")
        n = b.rms_norm(h, w)
        h = b.add(h, b.scale(b.scale(n, factor=0.5), factor=3.0) if i == extra else n)
    return b.finish(h)


def test_text_of_a_graph():
    assert print_graph(layers()).splitlines()[:6] == [
        "graph",
        "  step %x: f32[T, 4]",
        "  weight %layers.0.norm: f32[4]",
        "  weight %layers.1.norm: f32[4]",
        "  weight %layers.2.norm: f32[4]",
        "  %layers.0.rms_norm.0 = rms_norm(x=%x, weight=%layers.0.norm, eps=1e-05) -> f32[T, 4]",
    ]
    assert str(layers()) == print_graph(layers())
    assert print_graph(layers()).endswith("return %layers.2.add.0")


def test_a_change_in_one_layer_shows_in_that_layer_alone():
    lines = [line for line in diff_graphs(layers(), layers(extra=1)).splitlines()[2:] if not line.startswith("@")]
    assert [line[0] for line in lines] == ["-", "+", "+", "+"]
    assert all("%layers.1." in line for line in lines)
    assert not any("%layers.2." in line for line in lines)


def test_equal_graphs_have_no_difference_whatever_their_names():
    graph = layers()
    b = OpBuilder()
    x = b.input("x", TensorSpec((Sym("T", 8), 4), "f32"))
    b.scale(x)  # takes a number
    h = x
    for value in graph.inputs[1:]:
        h = b.add(h, b.rms_norm(h, b.input(value.name, value.spec, "weight")))
    other = b.finish(h)
    same = Graph(other.inputs, other.nodes[1:], other.outputs, other.kinds)
    assert diff_graphs(graph, same) == ""
