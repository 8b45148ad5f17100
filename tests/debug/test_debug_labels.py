"""Labels: every value has one, no two are equal, and they say what a person would say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tiny_models import EXTRA

from samebits.backends.discovery import get
from samebits.core.tiers import Tier
from samebits.debug.labels import label_values
from samebits.debug.prepare import open_model, rewritten, step_graph


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("model_type", EXTRA)
def test_labels_are_unique_and_layers_follow_each_other(
    tiny: Callable[[str], str], model_type: str, fused: bool
) -> None:
    graph = step_graph(open_model(tiny(model_type)), 16)
    if fused:
        graph = rewritten(graph, get("reference"), Tier.PORTABLE)
    values = [v.name for node in graph.nodes for v in node.outputs]
    labels = label_values(graph)
    assert list(labels) == values
    assert len({label.text for label in labels.values()}) == len(values)
    stages = list(dict.fromkeys(label.stage for label in labels.values()))
    assert stages == ["embed", "layers.0", "layers.1", "output"]
    order = [stages.index(label.stage) for label in labels.values()]
    assert order == sorted(order)


def test_names_are_those_of_weights_caches_and_ops(tiny: Callable[[str], str]) -> None:
    texts = {label.text: label for label in label_values(step_graph(open_model(tiny("qwen2")), 16)).values()}
    wanted = {"embed", "layers.1.attn.q", "layers.1.attn.q_bias", "layers.1.k_cache", "layers.1/rope.1", "norm"}
    assert wanted <= set(texts)
    assert "output/gemm.0" in texts  # the tied head: its weight's name is taken by the embedding
    assert texts["layers.1/rope.1"].layer == 1
    assert texts["layers.1/rope.1"].within == "/rope.1"
    assert texts["norm"].layer is None


def test_a_joined_weight_is_named_in_short(tiny: Callable[[str], str]) -> None:
    graph = rewritten(step_graph(open_model(tiny("llama")), 16), get("reference"), Tier.PORTABLE)
    assert "layers.0.attn.q+k+v" in {label.text for label in label_values(graph).values()}
