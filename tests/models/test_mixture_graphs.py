"""Graphs of mixtures in block formats after the passes: what enters a layer is quantized once for all who read it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checkpoint_runs import DATA

from samebits.backends.discovery import get
from samebits.bench.random_checkpoint import stored_format
from samebits.core.shapes import TensorSpec
from samebits.engine.plan import make_plan
from samebits.graph import Graph
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts.builder import Limits, ModelParts
from samebits.models.parts.experts import mixture_of

QUANTIZING = ("quantize_q8", "add_rms_norm_q8")
SIZES = {"hidden_size": 64, "ffn_size": 64, "num_heads": 4, "num_kv_heads": 2, "head_size": 16, "query_scalar": 16.0}


def graph_of(name: str, fmt: str) -> Graph:
    """The step of a model with whole blocks in every row, as the reference runs it."""
    checkpoint = open_checkpoint(DATA / name)
    mixture = mixture_of(checkpoint.config.mixture)
    sizes = replace(mixture, expert_size=32, shared_size=64 if mixture.has_shared else 0)
    config = replace(checkpoint.config, **SIZES, mixture=sizes)
    stored = checkpoint.architecture.tensors(config, is_gguf=True)

    def spec(tensor: str) -> TensorSpec | None:
        found = stored.get(tensor)
        return None if found is None else TensorSpec(found.shape, stored_format(found, fmt))

    limits = Limits(max_tokens=32, max_sequences=2, num_pages=8, max_positions=64)
    graph = checkpoint.architecture.build(ModelParts(config, spec, limits)).graph
    return make_plan(get("reference"), graph, None).graph


@pytest.mark.parametrize(
    ("name", "fmt"), [("mixtral", "q4_0"), ("glm4moe", "q4_0"), ("gpt_oss", "mxfp4"), ("qwen3moe_mixed", "q8_0")]
)
def test_one_quantization_per_layer_input(name: str, fmt: str) -> None:
    graph = graph_of(name, fmt)
    makers = {value.name: node for node in graph.nodes for value in node.outputs}
    experts = [node for node in graph.nodes if node.op.name == "expert_gate_q8"]
    num_sparse = sum(node.op.name == "route" for node in graph.nodes)
    assert len(experts) == num_sparse
    shared = [node for node in graph.nodes if node.op.name == "gemm_silu_q8"]
    entered = [node.inputs["codes"].name for node in experts]
    assert len(set(entered)) == num_sparse
    assert {makers[codes].op.name for codes in entered} <= set(QUANTIZING)
    if name == "glm4moe":  # each layer's shared experts read the codes that its experts do; the first layer is dense
        assert [node.inputs["codes"].name for node in shared][1:] == entered
    num_layers = open_checkpoint(DATA / name).config.num_layers
    counted = sum(node.op.name in QUANTIZING for node in graph.nodes)
    assert counted == 3 * num_layers + 1  # what enters attention, its projection and the experts; and the head
