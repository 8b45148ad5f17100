"""Which products are left for the rows that a step asks for; test_bits.py says that every bit is kept."""

from __future__ import annotations

import pytest
from toy_llama import EVERYTHING, toy_llama

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, Node, check_graph
from samebits.ops.build import OpBuilder, infer_specs
from samebits.passes.take_rows import take_rows

T, R = Sym("T", 8), Sym("R", 8)
ROWS, IDS = TensorSpec((T, 64), "f32"), TensorSpec((R,), "i32")


def on_asked_rows(graph: Graph) -> list[str]:
    """Weights of the products that compute nothing but the rows asked for."""
    check_graph(graph, infer_specs)
    return [
        n.inputs["weight"].name for n in graph.nodes if "weight" in n.inputs and n.outputs[0].spec.shape[0].name == "R"
    ]


def weight(b: OpBuilder, name: str, *shape: int) -> object:
    return b.input(name, TensorSpec(shape or (64, 64), "f32"), "weight")


def test_the_last_layer_is_computed_for_rows_asked_for_from_attention_on():
    names = on_asked_rows(take_rows(toy_llama(asks=True), EVERYTHING))
    last = [f"layers.1.{name}" for name in ("attn.o", "ffn_norm", "ffn.gate", "ffn.up", "ffn.down")]
    assert names == [*last, "norm", "head"]


def test_rows_of_each_value_are_taken_once():
    graph = take_rows(toy_llama(asks=True), EVERYTHING)
    taken = [n.inputs["table"].name for n in graph.nodes if n.op.name == "embedding"]
    assert len(taken) == len(set(taken)) == 3  # of the vocabulary, attention's results and the residual


def test_a_graph_without_such_rows_is_left_alone():
    for graph in (toy_llama(), toy_llama(asks=True, layers=0)):
        assert take_rows(graph, EVERYTHING) is graph


def test_nothing_is_taken_where_the_backend_cannot():
    graph = toy_llama(asks=True)

    def takes_the_vocabulary_only(node: Node) -> str | None:
        return "not of results" if node.op.name == "embedding" and node.inputs["table"].name != "embed" else None

    assert take_rows(graph, takes_the_vocabulary_only) is graph


@pytest.mark.parametrize("reader", ["an output", "another product"])
def test_rows_that_something_else_reads_are_all_computed(reader: str):
    b = OpBuilder()
    x, ids = b.input("x", ROWS), b.input("ids", IDS)
    y = b.gemm(x, weight(b, "first"))
    z = b.gemm(y, weight(b, "second"))
    other = y if reader == "an output" else b.gemm(y, weight(b, "third"))
    graph = take_rows(b.finish(b.embedding(z, ids), other), EVERYTHING)
    assert on_asked_rows(graph) == ["second"]


def test_what_mixes_rows_is_left_alone():
    b = OpBuilder()
    x, ids = b.input("x", ROWS), b.input("ids", IDS)
    segments, which = b.input("segments", TensorSpec((3,), "i32")), b.input("which", TensorSpec((2,), "i32"))
    y = b.grouped_gemm(x, weight(b, "stacked", 2, 64, 64), segments, which)
    graph = b.finish(b.embedding(y, ids))
    assert take_rows(graph, EVERYTHING) is graph
