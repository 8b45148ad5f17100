"""What fuse, join, share_quantization and decompose make of a small Llama, and what they leave alone."""

from __future__ import annotations

from collections import Counter

import pytest
from toy_llama import EVERYTHING, as_bytes, ops_of, toy_llama, without

from samebits.core.numerics.counter import Stream
from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, check_graph
from samebits.ops import OPS, call, make_inputs
from samebits.ops.build import OpBuilder, infer_specs
from samebits.ops.record import BLOCK_WEIGHTS
from samebits.passes import run_pipeline
from samebits.passes.canonicalize import canonicalize
from samebits.passes.decompose import decompose
from samebits.passes.fuse import derived_rules, fuse
from samebits.passes.join import join
from samebits.passes.share_quantization import share_quantization

ROWS = TensorSpec((Sym("T", 8), 64), "f32")


def count(graph: Graph) -> Counter:
    check_graph(graph, infer_specs)
    return Counter(ops_of(graph))


def matrix(b: OpBuilder, name: str, rows: int = 64, fmt: str = "q8_0"):
    return b.input(name, TensorSpec((rows, 64), fmt), "weight")


def test_every_op_with_a_decomposition_has_a_rule():
    fused = {rule.name.removeprefix("fuse ") for rule in derived_rules()}
    assert fused == {op.name for op in OPS if op.decompose is not None}
    assert {"fused_add_rms_norm", "gemm", "rope_and_append"} <= fused


def test_a_layer_is_fused_across_its_border():
    got = count(fuse(toy_llama(bias=("q", "o")), EVERYTHING))
    assert got["fused_add_rms_norm"] == 4  # two a layer; the first norm has nothing to add
    assert (got["add"], got["rms_norm"]) == (0, 1)
    assert (got["rope_both_and_append"], got["rope"], got["rope_and_append"]) == (2, 0, 0)


def test_a_decode_step_has_one_launch_between_two_products():
    """Llama's layers on a backend with every kernel, and on one without the widest."""
    graph = toy_llama(default="q8_0")
    got = count(run_pipeline(graph, EVERYTHING))
    assert (got["add_rms_norm_q8"], got["rope_both_and_append"]) == (4, 2)
    assert got["quantize_q8"] == 3  # the first norm has nothing to add, attention's results come as they are
    assert not got.keys() & {"fused_add_rms_norm", "rope", "rope_and_append", "append_paged_kv_cache"}
    narrow = count(run_pipeline(graph, without("add_rms_norm_q8", "rope_both_and_append")))
    assert (narrow["fused_add_rms_norm"], narrow["rope"], narrow["rope_and_append"]) == (4, 2, 2)


def test_queries_that_something_else_reads_are_turned_apart():
    b = OpBuilder()
    shapes = {"query": (4, 4, 32), "key": (4, 2, 32), "value": (4, 2, 32)}
    heads = {name: b.input(name, TensorSpec(shape, "f32")) for name, shape in shapes.items()}
    lengths = {"positions": 4, "batch_indices": 4, "kv_last_page_len": 1, "kv_indptr": 2, "kv_indices": 1}
    index = {name: b.input(name, TensorSpec((n,), "i32")) for name, n in (lengths | {"qo_indptr": 2}).items()}
    table = b.input("table", TensorSpec((8, 16, 2), "f32"), "weight")
    pages = {name: b.input(name, TensorSpec((1, 16, 2, 32), "f16"), "cache") for name in ("k_cache", "v_cache")}
    q, k = (b.rope(heads[name], index["positions"], table) for name in ("query", "key"))
    cells = {name: index[name] for name in lengths}
    k_cache, v_cache = b.append_paged_kv_cache(k, heads["value"], **cells, **pages)
    where = {name: index[name] for name in ("kv_last_page_len", "kv_indptr", "kv_indices")}
    a = b.paged_attention(q, k_cache, index["qo_indptr"], v_cache=v_cache, **where)
    assert count(fuse(b.finish(a, k_cache, v_cache), EVERYTHING))["rope_both_and_append"] == 1
    assert count(fuse(b.finish(a, q, k_cache, v_cache), EVERYTHING))["rope_both_and_append"] == 0


@pytest.mark.parametrize("op", ["fused_add_rms_norm", "rope_and_append"])
def test_only_what_is_supported_is_fused(op):
    got = count(fuse(toy_llama(), without(op)))
    assert got[op] == 0
    assert got["rope_both_and_append"] + got["fused_add_rms_norm"] > 0


def test_16_bit_values_that_would_lose_a_rounding_are_not_fused():
    got = count(fuse(toy_llama(act="f16", bias=("q",)), EVERYTHING))
    assert got["rope_and_append"] == 0
    assert got["add"] == 2  # the biases
    assert got["fused_add_rms_norm"] == 4  # rounds where its parts do


def test_a_residual_is_no_bias():
    b = OpBuilder()
    x = b.input("x", ROWS)
    graph = b.finish(b.add(b.gemm(x, matrix(b, "A")), x))
    assert ops_of(fuse(graph, EVERYTHING)) == ["gemm", "add"]


def test_products_of_one_x_are_joined():
    graph = join(fuse(toy_llama(default="q8_0", bias=("q", "k", "v")), EVERYTHING), EVERYTHING)
    assert count(graph)["gemm"] == 2 * 4 + 1
    assert graph.joined["layers.0.attn.q+layers.0.attn.k+layers.0.attn.v"] == tuple(f"layers.0.attn.{p}" for p in "qkv")
    assert graph.joined["layers.1.ffn.gate+layers.1.ffn.up"] == ("layers.1.ffn.gate", "layers.1.ffn.up")
    assert "layers.0.attn.q_bias+layers.0.attn.k_bias+layers.0.attn.v_bias" in graph.joined
    names = {v.name for v in graph.inputs}
    assert names >= set(graph.joined)
    assert not names & {part for parts in graph.joined.values() for part in parts}
    assert "concat_columns" not in ops_of(graph)


def joined_weights(build) -> set[str]:
    b = OpBuilder()
    outputs = build(b, b.input("x", ROWS))
    graph = join(b.finish(*outputs), EVERYTHING)
    check_graph(graph, infer_specs)
    return set(graph.joined)


def test_what_cannot_be_joined():
    two = lambda b, x, a, c: (b.gemm(x, a), b.gemm(x, c))  # noqa: E731
    assert joined_weights(lambda b, x: two(b, x, matrix(b, "A"), matrix(b, "B", 8))) == {"A+B"}
    assert joined_weights(lambda b, x: two(b, x, matrix(b, "A"), matrix(b, "B", fmt="q4_0"))) == set()
    assert joined_weights(lambda b, x: two(b, x, matrix(b, "A", fmt="nvfp4"), matrix(b, "B", fmt="nvfp4"))) == set()
    assert joined_weights(lambda b, x: two(b, b.scale(x), matrix(b, "A"), b.input("B", ROWS))) == set()

    def shared(b, x):
        a = matrix(b, "A")
        return (*two(b, x, a, matrix(b, "B")), b.gemm(b.scale(x, factor=2.0), a))

    def one_bias(b, x):
        return b.gemm(x, matrix(b, "A"), b.input("c", TensorSpec((64,), "f32"), "weight")), b.gemm(x, matrix(b, "B"))

    def taken_name(b, x):
        return *two(b, x, matrix(b, "A"), matrix(b, "B")), b.gemm(b.scale(x, factor=2.0), matrix(b, "A+B"))

    assert joined_weights(shared) == joined_weights(one_bias) == joined_weights(taken_name) == set()


def test_without_slices_only_concatenated_products_are_joined():
    graph = join(toy_llama(default="f16"), without("slice_columns"))
    assert set(graph.joined) == {f"layers.{i}.ffn.gate+layers.{i}.ffn.up" for i in range(2)}


def test_products_of_one_x_share_its_blocks():
    b = OpBuilder()
    x = b.input("x", ROWS)
    graph = b.finish(*(b.gemm(x, matrix(b, fmt, fmt=fmt)) for fmt in ("q8_0", "q4_0", "f16")))
    assert ops_of(share_quantization(graph, EVERYTHING)) == ["quantize_q8", "gemm_q8", "gemm_q8", "gemm"]
    assert ops_of(share_quantization(graph, without("quantize_q8"))) == ["gemm"] * 3


@pytest.mark.parametrize("fmt", BLOCK_WEIGHTS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_is_its_two_steps_bit_for_bit(fmt, with_bias):
    inputs = make_inputs(OPS["gemm"], next(c for c in OPS["gemm"].cases if c.id == f"small-{fmt}"))
    x, weight = inputs["x"], inputs["weight"]
    bias = Stream("bias").normal((weight.shape[0],)) if with_bias else None
    two_steps = call(OPS["gemm_q8"], *call(OPS["quantize_q8"], x), weight, bias)
    assert as_bytes(two_steps) == as_bytes(call(OPS["gemm"], x, weight, bias))


def test_16_bit_activations_are_not_put_into_blocks_apart():
    graph = toy_llama(default="q8_0", act="f16")
    assert ops_of(share_quantization(graph, EVERYTHING)) == ops_of(graph)


def test_decompose_is_the_way_back():
    graph = canonicalize(toy_llama(bias=("q", "k", "v")))
    fused = fuse(graph, EVERYTHING)
    back = decompose(fused, lambda node: "no" if "bias" in node.inputs or node.op.name in FUSED else None)
    assert count(back) == count(graph)
    assert ops_of(decompose(fused, EVERYTHING)) == ops_of(fused)


FUSED = ("fused_add_rms_norm", "rope_and_append", "rope_both_and_append")


def test_decompose_stops_where_nothing_is_left_to_take_apart():
    got = count(decompose(fuse(toy_llama(), EVERYTHING), lambda node: "nothing here"))
    assert not got.keys() & set(FUSED)
    assert got["gemm"] == 15


def test_a_write_to_an_input_is_not_decomposed_away():
    b = OpBuilder()
    x, w = b.input("x", ROWS), b.input("w", TensorSpec((64,), "f32"), "weight")
    y, total = b.fused_add_rms_norm(x, b.input("state", ROWS), w)
    graph = b.finish(y, total)
    assert ops_of(decompose(graph, lambda node: "nothing here")) == ["fused_add_rms_norm"]
