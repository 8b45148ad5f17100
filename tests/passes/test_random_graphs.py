"""Random graphs: passes keep bits, backends that lack ops get them too, and memory plans never overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_llama import (
    CONFIGS,
    EVERYTHING,
    STEPS,
    as_bytes,
    constant,
    inputs_for,
    joined,
    run_graph,
    run_in_arena,
    toy_llama,
    without,
)

from samebits.core.errors import SamebitsError
from samebits.core.format import spec_bytes
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, Value
from samebits.ops.build import OpBuilder
from samebits.passes import MemoryPlan, check_plan, plan_memory, run_pipeline

TOKENS, WIDTH = Sym("T", 6), 32
quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)
FORMATS = ("f32", "f16", "q8_0", "q4_0")
CHOICES = ("add", "mul", "scale", "cast", "rms_norm", "gemm", "fused", "halves", "concat", "heads", "bias")


class Maker:
    """Grows a graph node by node. A value that is written over is not read again."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.b = draw, OpBuilder()
        rows = TensorSpec((TOKENS, WIDTH), "f32")
        self.values: list[Value] = [self.b.input("x", rows), self.b.input("y", rows)]
        self.fixed = len(self.values)
        self.weights = 0

    def pick(self) -> Value:
        return self.draw(st.sampled_from(self.values))

    def weight(self, *shape: int, fmt: str = "f32") -> Value:
        self.weights += 1
        return self.b.input(f"w{self.weights}", TensorSpec(shape, fmt), "weight")

    def grow(self, choice: str) -> None:
        b, x = self.b, self.pick()
        if choice in ("add", "mul"):
            self.values.append(getattr(b, choice)(x, self.pick()))
        elif choice == "scale":
            self.values.append(b.scale(x, factor=self.draw(st.sampled_from([1.0, 0.5, -0.0, 0.3]))))
        elif choice == "cast":
            self.values.append(b.cast(b.cast(x, format=self.draw(st.sampled_from(["f32", "bf16"]))), format="f32"))
        elif choice == "rms_norm":
            self.values.append(b.rms_norm(x, self.weight(WIDTH)))
        elif choice == "gemm":
            self.values.append(b.gemm(x, self.weight(WIDTH, WIDTH, fmt=self.draw(st.sampled_from(FORMATS)))))
        elif choice == "bias":
            self.values.append(b.add(b.gemm(x, self.weight(WIDTH, WIDTH, fmt="q8_0")), self.weight(WIDTH)))
        elif choice == "fused" and len(self.values) > self.fixed:
            residual = self.draw(st.sampled_from(self.values[self.fixed :]))
            if residual is not x:
                self.values.remove(residual)
                self.values += b.fused_add_rms_norm(x, residual, self.weight(WIDTH))
        elif choice == "halves":
            cut = self.draw(st.integers(1, WIDTH - 1))
            parts = b.slice_columns(x, start=0, stop=cut), b.slice_columns(x, start=cut, stop=WIDTH)
            self.values.append(b.concat_columns(*parts[:: self.draw(st.sampled_from([1, -1]))]))
        elif choice == "concat":
            start = self.draw(st.integers(0, WIDTH))
            self.values.append(b.slice_columns(b.concat_columns(x, self.pick()), start=start, stop=start + WIDTH))
        elif choice == "heads":
            self.values.append(b.merge_heads(b.split_heads(x, heads=4)))


@st.composite
def graphs(draw: Any) -> Graph:
    maker = Maker(draw)
    for choice in draw(st.lists(st.sampled_from(CHOICES), min_size=2, max_size=14)):
        maker.grow(choice)
    outputs = draw(st.lists(st.sampled_from(maker.values[maker.fixed :] or maker.values), min_size=1, max_size=3))
    return maker.b.finish(*outputs)


def tensors(graph: Graph, original: Graph, num_tokens: int) -> dict[str, Any]:
    made = {v.name: constant(v) for v in original.inputs[2:]}
    made |= {name: Stream(name).normal((num_tokens, WIDTH)) for name in ("x", "y")}
    made |= {name: joined([made[p] for p in parts]) for name, parts in graph.joined.items()}
    return {v.name: made[v.name] for v in graph.inputs}


LACKING = st.sets(st.sampled_from(["fused_add_rms_norm", "slice_columns", "gemm_q8", "quantize_q8"]), max_size=2)


@quick
@given(graphs(), LACKING, st.sampled_from([0, 1, 5]))
def test_every_pass_keeps_every_bit(graph, lacking, num_tokens):
    with np.errstate(all="ignore"):
        want = run_graph(graph, tensors(graph, graph, num_tokens))
        seen: dict[str, Graph] = {}
        run_pipeline(graph, without(*lacking), lambda name, g: seen.setdefault(name, g))
        for name, after in seen.items():
            assert run_graph(after, tensors(after, graph, num_tokens)) == want, f"{name}\n{after}"


@quick
@given(graphs(), st.booleans())
def test_live_values_never_overlap(graph, is_optimized):
    if is_optimized:
        graph = run_pipeline(graph, EVERYTHING)
    plan = plan_memory(graph, alignment=64)
    check_plan(graph, plan)
    assert all(offset % 64 == 0 for offset in plan.offsets.values())
    all_bytes = sum(-(-spec_bytes(v.spec) // 64) * 64 for n in graph.nodes for v in n.outputs)
    assert plan.total_bytes <= all_bytes


@quick
@given(graphs())
def test_a_run_inside_the_plan_gives_the_same_bits(graph):
    plan = plan_memory(graph)
    with np.errstate(all="ignore"):
        want = run_graph(graph, tensors(graph, graph, 5))
        got = run_in_arena(graph, tensors(graph, graph, 5), plan.offsets, plan.total_bytes)
    assert got == [want[str(i)] for i in range(len(graph.outputs))]


@pytest.mark.parametrize("config", ["mixed", "qkv bias"])
def test_the_toy_runs_inside_its_plan_and_layers_share_memory(config):
    graph = toy_llama(**CONFIGS[config])
    after = run_pipeline(graph, EVERYTHING)
    plan = plan_memory(after)
    check_plan(after, plan)
    inputs = inputs_for(after, graph, STEPS["mixed step"])
    want = run_graph(after, inputs_for(after, graph, STEPS["mixed step"]))
    got = run_in_arena(after, inputs, plan.offsets, plan.total_bytes)
    assert got == [want[str(i)] for i in range(len(after.outputs))]
    deeper = run_pipeline(toy_llama(**CONFIGS[config], layers=6), EVERYTHING)
    assert plan_memory(deeper).total_bytes == plan.total_bytes


def test_the_checker_sees_an_overlap_and_a_value_outside():
    b = OpBuilder()
    x = b.input("x", TensorSpec((TOKENS, WIDTH), "f32"))
    first, second = b.scale(x, factor=2.0), b.scale(x, factor=3.0)
    graph = b.finish(b.add(first, second))
    plan = plan_memory(graph)
    wrong = {**plan.offsets, second.name: plan.offsets[first.name] + 4}
    with pytest.raises(SamebitsError, match=r"node 1, scale: %scale.0 and %scale.1 overlap"):
        check_plan(graph, MemoryPlan(wrong, 2 * plan.total_bytes))
    with pytest.raises(SamebitsError, match="outside the arena"):
        check_plan(graph, MemoryPlan(plan.offsets, plan.total_bytes - 1))


def test_a_written_value_lies_where_the_old_one_lay():
    b = OpBuilder()
    x, w = b.input("x", TensorSpec((TOKENS, WIDTH), "f32")), b.input("w", TensorSpec((WIDTH,), "f32"), "weight")
    h = b.scale(x, factor=2.0)
    y, total = b.fused_add_rms_norm(x, h, w)
    plan = plan_memory(b.finish(y, total))
    assert plan.offsets[total.name] == plan.offsets[h.name] != plan.offsets[y.name]
    assert spec_bytes(TensorSpec((2, 64), "q4_0")) == 2 * 2 * 18


def test_bytes_of_equal_tensors_agree():
    a = np.zeros((2, 3), np.float32)
    assert as_bytes(a) == as_bytes(a.copy()) != as_bytes(a.reshape(3, 2))
