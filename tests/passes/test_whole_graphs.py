"""Random graphs are whole after every pass, whichever passes ran before, and their outputs keep specs and bits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from toy_llama import EVERYTHING, as_bytes, without
from wide_graphs import wide_graph

from samebits.core.numerics.counter import Stream
from samebits.graph import Graph, check_graph
from samebits.ops.build import infer_specs
from samebits.passes import PASSES, Supports, check_plan, plan_memory
from samebits.verify.graph_cases import GRAPH_CASES
from samebits.verify.graph_run import evaluated
from samebits.verify.random_graphs import random_chains, random_graph, random_rows
from samebits.verify.scenes import Tensors

NUM_STEPS = 2  # of the scene: part of a prompt, and prompts beside a decode
LACKS = ("fused_add_rms_norm", "slice_columns", "gemm_q8", "quantize_q8", "add_rms_norm_q8", "embedding", "cast")


def assert_whole(before: Graph, after: Graph, where: str) -> None:
    """The rules of every graph; outputs, step inputs and caches as they were, weights at least of the graph or joined
    of its."""
    check_graph(after, infer_specs)
    assert [v.spec for v in after.outputs] == [v.spec for v in before.outputs], where
    kept = [v for v in before.inputs if v.name not in before.weights]
    assert [v for v in after.inputs if v.name not in after.weights] == kept, where
    made_of = {part for parts in after.joined.values() for part in parts}
    assert made_of | (after.weights - after.joined.keys()) <= before.weights, where
    check_plan(after, plan_memory(after))


def passed(graph: Graph, chosen: range | list[int], supports: Supports = EVERYTHING) -> Iterator[tuple[str, Graph]]:
    """The graph after each of the chosen passes, where it changed something."""
    after, names = graph, []
    for number in chosen:
        name, run = PASSES[number]
        changed = run(after, supports)
        names.append(name)
        if str(changed) != str(after):
            yield " > ".join(names), changed
        after = changed


def outputs_of(graph: Graph, tensors: Tensors) -> list[list[bytes]]:
    return [[as_bytes(step[v.name]) for v in graph.outputs] for step in islice(evaluated(graph, tensors), NUM_STEPS)]


def some_passes(seed: int) -> list[int]:
    """Some of the passes, in an order that may be another than the pipeline's."""
    stream = Stream("passes", seed)
    numbers = [int(n) for n in stream.child("order").permutation(len(PASSES))]
    chosen = numbers[: 1 + seed % len(PASSES)]
    return sorted(chosen) if seed % 3 else chosen


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_wide_graphs_are_whole_after_every_pass(first: int) -> None:
    for seed in range(first, first + 40):
        graph = wide_graph(seed)
        check_graph(graph, infer_specs)
        lacking = without(LACKS[seed % len(LACKS)])
        for chosen, supports in (
            (range(len(PASSES)), EVERYTHING),
            (some_passes(seed), EVERYTHING),
            (range(len(PASSES)), lacking),
        ):
            for name, after in passed(graph, chosen, supports):
                assert_whole(graph, after, f"seed {seed}: {name}\n{after}")


@pytest.mark.parametrize("draw", [random_graph, random_rows, random_chains])
def test_graphs_of_verify_are_whole_after_every_pass(draw) -> None:
    for number in range(60):
        graph = draw(number, 7)
        for name, after in passed(graph, range(len(PASSES))):
            assert_whole(graph, after, f"number {number}: {name}")


@pytest.mark.parametrize("case", GRAPH_CASES, ids=lambda case: case.id)
def test_cases_of_verify_are_whole_after_every_pass(case) -> None:
    graph = case.make(0)
    for name, after in passed(graph, range(len(PASSES))):
        assert_whole(graph, after, name)


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_wide_graphs_keep_every_bit(first: int) -> None:
    for seed in range(first, first + 8):
        graph = wide_graph(seed)
        tensors = Tensors(graph, seed)
        wanted = outputs_of(graph, tensors)
        for chosen in (range(len(PASSES)), some_passes(seed)):
            for name, after in passed(graph, chosen):
                assert outputs_of(after, tensors) == wanted, f"seed {seed}: {name}\n{after}"


@pytest.mark.parametrize("lacking", LACKS)
def test_wide_graphs_keep_every_bit_on_backends_that_lack_an_op(lacking: str) -> None:
    """Of float32 activations: a decomposition rounds 16-bit ones once more."""
    for seed in (1, 3, 5):
        graph = wide_graph(seed)
        tensors = Tensors(graph, seed)
        (*_, (name, after)) = passed(graph, range(len(PASSES)), without(lacking))
        assert outputs_of(after, tensors) == outputs_of(graph, tensors), f"seed {seed}: {name}\n{after}"
