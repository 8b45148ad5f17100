"""Which products are left for the rows that a step asks for; test_bits.py says that every bit is kept."""

from __future__ import annotations

import pytest
from toy_llama import EVERYTHING, ops_of, toy_llama, without

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, Node, Value, check_graph
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


def weight(b: OpBuilder, name: str, *shape: int) -> Value:
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


def halved_product(b: OpBuilder) -> Value:
    x = b.cast(b.input("x", ROWS), format="bf16")
    return b.gemm(x, weight(b, "w"))


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
def test_rows_keep_the_format_that_the_taking_gives_them(fmt: str):
    b = OpBuilder()
    graph = b.finish(b.embedding(halved_product(b), b.input("ids", IDS), format=fmt))
    after = take_rows(graph, EVERYTHING)
    assert on_asked_rows(after) == ["w"]
    assert [v.spec for v in after.outputs] == [v.spec for v in graph.outputs]
    if fmt != "bf16":
        assert take_rows(graph, without("cast")) is graph


def test_rows_of_rows_are_taken():
    b = OpBuilder()
    ids, fewer = b.input("ids", IDS), b.input("fewer", TensorSpec((Sym("F", 8),), "i32"))
    rows = b.embedding(b.gemm(b.input("x", ROWS), weight(b, "w")), ids)
    after = take_rows(b.finish(b.embedding(rows, fewer)), EVERYTHING)
    assert ops_of(after) == ["embedding", "embedding", "gemm"]
    check_graph(after, infer_specs)


def left_alone(b: OpBuilder, *outputs: Value) -> None:
    graph = b.finish(*outputs)
    check_graph(graph, infer_specs)
    assert take_rows(graph, EVERYTHING) is graph


def test_a_product_that_nobody_reads_is_not_taken():
    b = OpBuilder()
    x = b.input("x", ROWS)
    b.gemm(x, weight(b, "w"))
    y = b.softmax(x)
    left_alone(b, b.embedding(y, b.input("ids", IDS)), y)


def test_what_has_no_rows_to_take_is_not_taken():
    """Codes of int8 blocks and the numbers of experts, which other nodes read too."""
    b = OpBuilder()
    x, ids = b.input("x", ROWS), b.input("ids", IDS)
    blocks = b.quantize_q8(x)
    y = b.gemm_q8(*blocks, b.input("w", TensorSpec((64, 64), "q8_0"), "weight"))
    left_alone(b, b.embedding(y, ids), *blocks)

    b = OpBuilder()
    x, ids = b.input("x", ROWS), b.input("ids", IDS)
    experts, weights = b.route(b.input("logits", TensorSpec((T, 4), "f32")), top_k=2)
    y = b.combine(b.expert_gemm(x, weight(b, "w", 4, 64, 64), *b.expert_layout(experts, num_experts=4)), weights)
    left_alone(b, b.embedding(y, ids), experts)


FIXED = TensorSpec((4, 64), "f32")


def test_a_weight_with_a_row_for_each_token_is_not_read_by_taken_rows():
    for spec in (ROWS, FIXED):
        b = OpBuilder()
        y = b.add(b.gemm(b.input("x", spec), weight(b, "w")), b.input("each", spec, "weight"))
        left_alone(b, b.embedding(y, b.input("ids", TensorSpec((4,), "i32"))))


def test_a_result_that_all_rows_are_multiplied_by_is_not_taken():
    b = OpBuilder()
    x = b.scale(b.input("x", FIXED), factor=2.0)
    left_alone(b, b.embedding(b.gemm(x, x), b.input("ids", TensorSpec((4,), "i32"))))


def test_a_table_of_results_that_results_number_is_not_taken():
    b = OpBuilder()
    x = b.gemm(b.input("x", ROWS), weight(b, "w"))
    left_alone(b, b.embedding(b.embedding(x, b.argmax(x)), b.input("ids", IDS)))


def test_rows_of_a_product_of_weights_are_taken_from_all_of_it():
    b = OpBuilder()
    left_alone(b, b.embedding(b.gemm(weight(b, "a", 4, 64), weight(b, "w")), b.input("ids", IDS)))
