"""Every pass keeps every bit: outputs and caches of a small Llama before and after, byte by byte."""

from __future__ import annotations

import functools

import pytest
from toy_llama import CONFIGS, EVERYTHING, SCENES, STEPS, inputs_for, run_graph, toy_llama, without

from samebits.graph import Graph, check_graph
from samebits.ops.build import infer_specs
from samebits.passes import PASSES, run_pipeline


@functools.cache
def before(config: str, step: str) -> dict[str, bytes]:
    graph = toy_llama(**CONFIGS[config])
    return run_graph(graph, inputs_for(graph, graph, STEPS[step]))


def stages(graph: Graph, supports=EVERYTHING) -> dict[str, Graph]:
    seen: dict[str, Graph] = {}
    run_pipeline(graph, supports, lambda name, g: seen.setdefault(name, g))
    return seen


@pytest.mark.parametrize(("config", "step"), SCENES)
def test_every_pass_keeps_every_bit(config, step):
    graph = toy_llama(**CONFIGS[config])
    text = str(graph)
    for name, after in stages(graph).items():
        if str(after) == text:
            continue
        text = str(after)
        assert run_graph(after, inputs_for(after, graph, STEPS[step])) == before(config, step), name


BACKENDS = {
    "no fused ops": without("fused_add_rms_norm", "rope_and_append"),
    "no wide fused ops": without("add_rms_norm_q8", "rope_both_and_append"),
    "no bias": lambda node: "no bias" if "bias" in node.inputs else None,
    "no slices": without("slice_columns"),
    "no gemm_q8": without("gemm_q8"),
    "no quantize_q8": without("quantize_q8"),
    "q4_0 dense": lambda node: (
        "q4_0" if node.op.name == "gemm_q8" and node.inputs["weight"].spec.format == "q4_0" else None
    ),
    "nothing": lambda node: "nothing here",
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("config", ["mixed", "mixed, biases everywhere"])
def test_every_backend_gets_the_same_bits(config, backend):
    graph = toy_llama(**CONFIGS[config])
    after = run_pipeline(graph, BACKENDS[backend])
    assert run_graph(after, inputs_for(after, graph, STEPS["mixed step"])) == before(config, "mixed step")


@pytest.mark.parametrize("config", CONFIGS)
def test_graphs_are_whole_after_every_pass_and_the_pipeline_has_an_end(config):
    seen = stages(toy_llama(**CONFIGS[config]))
    assert list(seen) == ["input", *(name for name, _ in PASSES)]
    for graph in seen.values():
        check_graph(graph, infer_specs)
    last = list(seen.values())[-1]
    assert str(run_pipeline(last, EVERYTHING)) == str(last)
