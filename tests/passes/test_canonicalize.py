"""Each rule where it applies and where it must not; equal nodes; unused ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from toy_llama import ops_of, run_graph

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, check_graph
from samebits.ops.build import OpBuilder, infer_specs
from samebits.passes.canonicalize import canonicalize, merge_equal

TOKENS = Sym("T", 8)


def simplified(build: Callable[[Any, Any], Any], fmt: str = "f32", *shape: int) -> tuple[list[str], Graph]:
    """Return what is left of the ops between an input and a norm of each result, and the whole graph."""
    b = OpBuilder()
    results = build(b, b.input("x", TensorSpec((TOKENS, *(shape or (16,))), fmt)))
    graph = b.finish(*(b.l2_norm(y) for y in (results if isinstance(results, tuple) else (results,))))
    after = canonicalize(graph)
    check_graph(after, infer_specs)
    return [name for name in ops_of(after) if name != "l2_norm"], after


GONE = {
    "scale by 1": lambda b, x: b.scale(x, factor=1.0),
    "cast to itself": lambda b, x: b.cast(x, format="f32"),
    "merge of split": lambda b, x: b.merge_heads(b.split_heads(x, heads=4)),
    "slice of all": lambda b, x: b.slice_columns(x, start=0, stop=16),
    "halves together": lambda b, x: b.concat_columns(
        b.slice_columns(x, start=0, stop=9), b.slice_columns(x, start=9, stop=16)
    ),
    "left of concat": lambda b, x: b.slice_columns(b.concat_columns(x, b.mul(x, x)), start=0, stop=16),
    "right of concat": lambda b, x: b.slice_columns(b.concat_columns(b.mul(x, x), x), start=16, stop=32),
}
KEPT = {
    "scale by 2": (lambda b, x: b.scale(x, factor=2.0), ["scale"]),
    "scale twice": (lambda b, x: b.scale(b.scale(x, factor=0.1), factor=0.3), ["scale", "scale"]),
    "cast down and up": (lambda b, x: b.cast(b.cast(x, format="f16"), format="f32"), ["cast", "cast"]),
    "add of zeros": (lambda b, x: b.add(x, b.scale(x, factor=0.0)), ["scale", "add"]),
    "slice across": (
        lambda b, x: b.slice_columns(b.concat_columns(x, b.mul(x, x)), start=8, stop=24),
        ["mul", "concat_columns", "slice_columns"],
    ),
    "a hole between slices": (
        lambda b, x: b.concat_columns(b.slice_columns(x, start=0, stop=4), b.slice_columns(x, start=5, stop=9)),
        ["slice_columns", "slice_columns", "concat_columns"],
    ),
    "operands swapped": (lambda b, x: (b.add(x, b.mul(x, x)), b.add(b.mul(x, x), x)), ["mul", "add", "add"]),
}


@pytest.mark.parametrize("name", GONE)
def test_what_says_nothing_is_gone(name):
    ops, graph = simplified(GONE[name])
    assert ops == []
    assert all(node.inputs["x"] == graph.inputs[0] for node in graph.nodes)


@pytest.mark.parametrize("name", GONE)
def test_what_hands_out_an_input_stays_and_settles_it(name):
    """An input's memory is the caller's, and what the caller wrote there may be -0 or a subnormal."""
    b = OpBuilder()
    graph = b.finish(GONE[name](b, b.input("x", TensorSpec((TOKENS, 16), "f32"))))
    after = canonicalize(graph)
    assert after.outputs[0] not in after.inputs
    x = np.full((3, 16), -0.0, np.float32)
    x[1] = 1e-30
    assert run_graph(after, {"x": x.copy()}) == run_graph(graph, {"x": x.copy()})


@pytest.mark.parametrize("name", KEPT)
def test_what_changes_bits_stays(name):
    assert simplified(KEPT[name][0])[0] == KEPT[name][1]


def test_casts_and_slices_read_more_directly():
    ops, graph = simplified(lambda b, x: b.cast(b.cast(x, format="f32"), format="bf16"), "f16")
    assert (ops, graph.nodes[0].inputs["x"].name) == (["cast"], "x")
    assert simplified(lambda b, x: b.cast(b.cast(x, format="f32"), format="f16"), "f16")[0] == []
    inner = lambda b, x: b.slice_columns(b.slice_columns(x, start=2, stop=12), start=3, stop=7)  # noqa: E731
    ops, graph = simplified(inner)
    assert (ops, dict(graph.nodes[0].attrs)) == (["slice_columns"], {"start": 5, "stop": 9})


def test_heads_split_as_they_were():
    assert simplified(lambda b, x: b.split_heads(b.merge_heads(x), heads=4), "f32", 4, 8)[0] == []
    other = simplified(lambda b, x: b.split_heads(b.merge_heads(x), heads=8), "f32", 4, 8)[0]
    assert other == ["merge_heads", "split_heads"]


def test_an_interior_value_that_others_read_stays_for_them():
    ops, _ = simplified(lambda b, x: (c := b.concat_columns(x, x), b.slice_columns(c, start=0, stop=16)))
    assert ops == ["concat_columns"]


def test_equal_nodes_are_one_unless_their_memory_is_written():
    b = OpBuilder()
    x, w = b.input("x", TensorSpec((TOKENS, 16), "f32")), b.input("w", TensorSpec((16,), "f32"), "weight")
    first, second, third = (b.mul(x, x) for _ in range(3))
    y, total = b.fused_add_rms_norm(x, third, w)
    graph = merge_equal(b.finish(b.add(first, second), y, total))
    check_graph(graph, infer_specs)
    assert ops_of(graph) == ["mul", "mul", "fused_add_rms_norm", "add"]


def test_unused_nodes_and_weights_go_but_writes_to_inputs_stay():
    b = OpBuilder()
    x, w = b.input("x", TensorSpec((TOKENS, 16), "f32")), b.input("w", TensorSpec((16,), "f32"), "weight")
    b.input("unused", TensorSpec((16,), "f32"), "weight")
    step = b.input("unused step", TensorSpec((16,), "f32"))
    b.rms_norm(x, w)
    state = b.input("state", TensorSpec((TOKENS, 16), "f32"), "cache")
    b.fused_add_rms_norm(x, state, w)
    b.fused_add_rms_norm(x, b.mul(x, x), w)
    graph = canonicalize(b.finish(b.scale(x, factor=2.0)))
    assert ops_of(graph) == ["fused_add_rms_norm", "scale"]
    assert graph.inputs == (x, w, step, state)
    assert dict(graph.kinds) == {"w": "weight", "state": "cache"}
