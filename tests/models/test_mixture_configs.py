"""Configurations of mixtures: what a key means where it is absent, and one line for what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import DATA, MIXTURE_NAMES
from config_checks import (
    check_anything_in_any_key,
    check_folder_refused,
    check_line,
    check_says_the_same,
    gguf_with,
)
from test_bad_checkpoints import refusal
from test_config_defaults import config_with

from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts.decoder import Layer
from samebits.models.parts.experts import mixture_of
from samebits.models.parts.rope import ROPE_TABLE, Rope, Scaling

ABSENT: list[tuple[str, str, str, Any]] = [  # of keys that would change answers silently: transformers' defaults
    ("mixtral", "num_experts_per_tok", "top_k", 2),
    ("qwen3moe", "norm_topk_prob", "is_normalized", False),
    ("granitemoe", "num_experts_per_tok", "top_k", 2),
    ("glm4moe", "norm_topk_prob", "is_normalized", True),
    ("glm4moe", "routed_scaling_factor", "scale", 1.0),
    ("glm4moe", "topk_group", "num_groups_kept", 1),
    ("gpt_oss", "swiglu_limit", "limit", 7.0),
    ("gpt_oss", "swiglu_alpha", "alpha", 1.702),
    ("gpt_oss", "num_experts_per_tok", "top_k", 4),
    ("qwen3next_moe", "norm_topk_prob", "is_normalized", True),
    ("granitehybrid_moe", "num_experts_per_tok", "top_k", 2),
    ("nemotron_h_moe", "num_experts_per_tok", "top_k", 2),
    ("nemotron_h_moe", "routed_scaling_factor", "scale", 1.0),
]


@pytest.mark.parametrize(("name", "key", "field", "value"), ABSENT, ids=[f"{a[0]}-{a[1]}" for a in ABSENT])
def test_absent_key_is_the_default_of_transformers(tmp_path: Path, name: str, key: str, field: str, value: Any) -> None:
    folder = config_with(tmp_path, name, {"n_group": 1} if key == "topk_group" else {}, without=key)
    assert getattr(mixture_of(open_checkpoint(folder).config.mixture), field) == value


def test_absent_rotations(tmp_path: Path) -> None:
    mixtral = open_checkpoint(config_with(tmp_path, "mixtral", {}, without="rope_parameters")).config
    assert mixtral.ropes == {ROPE_TABLE: Rope(1e6, 8)}
    ropes = open_checkpoint(config_with(tmp_path, "gpt_oss", {}, without="rope_parameters")).config.ropes
    yarn = Scaling("yarn", 32.0, 4096, is_truncated=False, magnitude=ropes[ROPE_TABLE].scaling.magnitude)
    assert ropes == {ROPE_TABLE: Rope(150000.0, 8, yarn)}
    assert yarn.magnitude == pytest.approx(1.3465735902799727)
    window = open_checkpoint(config_with(tmp_path / "other", "gpt_oss", {"layer_types": None}, "sliding_window")).config
    assert window.layers == (Layer(128, ffn="experts"), Layer(ffn="experts"))


SAME: list[tuple[str, dict[str, Any], str]] = [  # what is stated otherwise, and what is left out
    ("qwen3moe", {"num_experts": 8}, "num_local_experts"),
    ("gpt_oss", {"rope_scaling": {}, "num_experts": 4}, "num_local_experts"),
    ("nemotron_h_moe", {"layers_block_type": None, "hybrid_override_pattern": "ME*E"}, ""),
    ("nemotron_h_moe", {"layers_block_type": ["mamba", "moe", "attention", "moe"]}, ""),
]


@pytest.mark.parametrize(("name", "change", "without"), SAME, ids=[f"{n}-{'-'.join(c)}" for n, c, _ in SAME])
def test_the_same_stated_otherwise(tmp_path: Path, name: str, change: dict[str, Any], without: str) -> None:
    check_says_the_same(tmp_path, name, change, without)


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("mixtral", {"num_experts_per_tok": 5}, "experts of a token is 5", "at most the 4"),
    ("mixtral", {"num_local_experts": 5}, "block_sparse_moe.gate.weight (layers.0.ffn.router) has shape 4x32", "5x32"),
    ("mixtral", {"num_local_experts": 1 << 20}, "num_local_experts is 1048576", "an integer from 0 to 65536"),
    ("gpt_oss", {"num_experts": 99}, "num_experts is 99", "the 4 of num_local_experts"),
    ("gpt_oss", {"num_experts": "many"}, "num_experts is 'many'", "the 4 of num_local_experts"),
    ("qwen3moe", {"num_experts": 60000}, "num_local_experts is 8", "the 60000 of num_experts"),
    ("qwen3moe", {"num_experts": 4000000000}, "num_experts is 4000000000", "an integer from 1 to 65536"),
    ("qwen3moe", {"moe_intermediate_size": 13}, "experts.0.gate_proj.weight (layers.0.ffn.experts.gate)", "13x32"),
    ("qwen3moe", {"mlp_only_layers": [0.5]}, "mlp_only_layers is a list of 1", "a list of layers"),
    ("glm4moe", {"n_group": 3}, "groups of experts is 3", "a divisor of the 8 experts"),
    ("glm4moe", {"topk_group": 5}, "groups of a token is 5", "at most the 4"),
    ("glm4moe", {"n_group": 8}, "groups of experts is 8", "groups of at least 2 experts"),
    ("glm4moe", {"topk_group": 1}, "experts of a token is 3", "at most the 2 of the groups that it chooses"),
    ("nemotron_h_moe", {"moe_latent_size": 16}, "(layers.1.ffn.latent_down) is missing", "shape 16x32"),
    ("nemotron_h_moe", {"n_routed_experts": 0}, "experts is 0", "at least 1"),
    ("llama", {"num_local_experts": 4}, "num_local_experts is 4", "no mixtures of experts"),
]


@pytest.mark.parametrize(("name", "config", "problem", "need"), BAD, ids=[f"{b[0]}-{b[2]}" for b in BAD])
def test_bad_folder(tmp_path: Path, name: str, config: dict[str, Any], problem: str, need: str) -> None:
    check_folder_refused(tmp_path, name, config, problem, need)


BAD_GGUF: list[tuple[str, str, Any, str, str]] = [
    ("mixtral", "llama.expert_used_count", None, "expert_used_count is missing", "an integer"),
    ("glm4moe", "glm4moe.expert_gating_func", 4, "expert_gating_func is 4", "1 (softmax), 2 (sigmoid), 3 (chosen)"),
    ("glm4moe", "glm4moe.nextn_predict_layers", 3, "layers is 0", "at least 1"),
    ("nemotron_h_moe", "nemotron_h_moe.nextn_predict_layers", 4, "layers is 0", "at least 1"),
    ("qwen35moe", "qwen35moe.expert_shared_feed_forward_length", None, "shared_feed_forward_length is", "an integer"),
]


@pytest.mark.parametrize(("name", "key", "value", "problem", "need"), BAD_GGUF)
def test_bad_gguf(name: str, key: str, value: Any, problem: str, need: str) -> None:
    check_line(refusal(gguf_with(name, {key: value})), problem, need)


def test_a_file_may_state_the_routers_rule() -> None:
    _, config = gguf_with("qwen3moe", {"qwen3moe.expert_gating_func": 3, "qwen3moe.expert_weights_norm": False})()
    stated = mixture_of(open_checkpoint(DATA / "qwen3moe").config.mixture)
    assert config.mixture == replace(stated, scores="chosen", is_normalized=False)


@pytest.mark.parametrize("file", [*MIXTURE_NAMES, "glm4moe/model-f32.gguf", "nemotron_h_moe/model-f32.gguf"])
def test_anything_in_any_key_is_read_or_refused_in_a_line(file: str) -> None:
    check_anything_in_any_key(file)
