"""Configurations of hybrids: all the ways in which published files state the same, and one line for what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_runs import DATA, HYBRID_NAMES
from config_checks import (
    check_anything_in_any_key,
    check_folder_refused,
    check_line,
    check_says_the_same,
    gguf_with,
)
from test_bad_checkpoints import refusal
from test_config_defaults import config_with

from samebits import LLM
from samebits.core.errors import SamebitsError
from samebits.models.checkpoint import open_checkpoint

GRANITE_TYPES = {"layer_types": ["mamba", "attention", "mamba"], "position_embedding_type": "nope"}
SAME: list[tuple[str, dict[str, Any], str]] = [  # what is stated otherwise, and what is left out
    ("granitehybrid", GRANITE_TYPES, "time_step_limit"),
    ("granitehybrid", {"mamba_d_head": "auto"}, ""),
    ("granitehybrid", {}, "mamba_d_head"),
    ("granitehybrid", {"mamba_d_head": "auto"}, "mamba_expand"),
    ("granitehybrid_moe", {"mamba_d_head": "auto"}, ""),
    ("qwen3next", {"layer_types": None, "full_attention_interval": 2}, "tie_word_embeddings"),
    ("qwen3next", {"num_experts": 8, "mlp_only_layers": [0, 1, 2]}, ""),
    ("qwen3next", {"num_experts": 8, "decoder_sparse_step": 4}, ""),
    ("qwen3next", {"rope_parameters": None, "rope_theta": 500.0, "partial_rotary_factor": 0.25}, ""),
    ("qwen35", {"rope_parameters": {"rope_theta": 500.0, "mrope_section": [1, 1, 0], "mrope_interleaved": True}}, ""),
    ("lfm2", {"layer_types": None, "full_attn_idxs": [1]}, ""),
    ("lfm2", {"block_ff_dim": 60, "intermediate_size": 9}, "block_ffn_dim_multiplier"),
    (
        "lfm2",
        {"intermediate_size": 48, "block_auto_adjust_ff_dim": False, "tie_embedding": True},
        "tie_word_embeddings",
    ),
    ("nemotron_h", {"layers_block_type": None, "hybrid_override_pattern": "M-*-M"}, "time_step_min"),
    ("nemotron_h", {"layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba"]}, "num_hidden_layers"),
    ("nemotron_h", {"attention_head_dim": 8}, "head_dim"),
    ("falcon_h1", {"mamba_d_ssm": 48, "mamba_d_head": "auto"}, "mamba_rms_norm"),
    ("mamba2", {"time_step_limit": [0.0, 1e30]}, "n_groups_unused"),
]


def test_infinity_as_python_writes_it(tmp_path: Path) -> None:
    folder = config_with(tmp_path, "mamba2", {"time_step_limit": [0.0, float("inf")]})
    assert "Infinity]" in (folder / "config.json").read_text()
    assert open_checkpoint(folder).config == open_checkpoint(DATA / "mamba2").config


@pytest.mark.parametrize(("name", "change", "without"), SAME, ids=[f"{n}-{'-'.join(c)}" for n, c, _ in SAME])
def test_the_same_stated_otherwise(tmp_path: Path, name: str, change: dict[str, Any], without: str) -> None:
    check_says_the_same(tmp_path, name, change, without)


def test_limits_of_a_step_of_time(tmp_path: Path) -> None:
    recurrence = open_checkpoint(DATA / "falcon_h1_norm").config.recurrence
    assert recurrence is not None
    other = open_checkpoint(config_with(tmp_path, "falcon_h1_norm", {"time_step_limit": [0, 2]})).config.recurrence
    assert other == replace(recurrence, dt_min=0.0, dt_max=2.0)


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("qwen3next", {"num_experts": 8}, "experts of a token is 10", "at most the 8"),
    ("qwen3next", {"num_experts": None}, "mlp.gate.weight (layers.0.ffn.router) is missing", "shape 512x32"),
    ("qwen3next", {"num_experts": 16, "mlp_only_layers": [0, 2]}, "(layers.1.ffn.router) is missing", "shape 16x32"),
    ("qwen3next", {"num_experts": 8, "mlp_only_layers": "all"}, "mlp_only_layers is 'all'", "a list"),
    ("qwen3next", {"linear_num_value_heads": 3}, "value heads is 3", "a multiple of the 2 key heads"),
    ("qwen3next", {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim is 1", "an integer from 2 to 64"),
    ("qwen3next", {"linear_key_head_dim": 16}, "(layers.0.delta.qkv) has shape 128x32", "shape 160x32"),
    ("qwen3next", {"layer_types": ["linear_attention", "full_attention"]}, "layer_types is [", "3 of full_attention"),
    ("qwen3next", {"layer_types": ["linear_attention", 1, None]}, "layer_types is [", "3 of full_attention"),
    ("qwen3next", {"layer_types": ["linear_attention", "mlp", "conv"]}, "layer_types is [", "mamba, conv"),
    ("mamba2", {"n_groups": 3}, "groups of a state space is 3", "a divisor of the 8 heads"),
    ("qwen3next", {"attention_bias": True}, "attention_bias is True", "biases of projections are not supported"),
    ("mamba2", {"use_bias": True}, "use_bias is True", "biases of projections are not supported"),
    ("mamba2", {"time_step_limit": [1.0, 0.5]}, "time_step_limit is a list of 2", "the larger last"),
    ("mamba2", {"time_step_limit": [-1, 1]}, "time_step_limit is a list of 2", "neither negative"),
    ("mamba2", {"time_step_limit": [0.0, "Infinity"]}, "time_step_limit is a list of 2", "two numbers"),
    ("mamba2", {"time_step_limit": 3}, "time_step_limit is 3", "two numbers"),
    ("lfm2", {"conv_bias": True}, "conv_bias is True", "biases of convolutions are not supported"),
    ("lfm2", {"layer_types": None, "full_attn_idxs": [3]}, "full_attn_idxs is [3]", "layers from 0 to 2"),
    ("granitehybrid", {"num_local_experts": 4}, "num_experts_per_tok is 0", "an integer from 1"),
    (
        "granitehybrid",
        {"num_local_experts": None, "num_experts_per_tok": 2},
        "(layers.0.ffn.router) is missing",
        "8x32",
    ),
    ("granitehybrid", {"mamba_d_head": 16}, "mamba_d_head is 16", "8 or auto: 8 heads have"),
    ("granitehybrid", {"mamba_d_head": "wide"}, "mamba_d_head is 'wide'", "an integer from 1"),
    ("granitehybrid", {"mamba_d_head": "auto", "mamba_n_heads": 7}, "width of a state space is 64", "the 7 heads"),
    ("granitehybrid", {"mamba_d_head": "auto", "mamba_expand": 3}, "(layers.0.ssm.in) has shape", "shape 224x32"),
    ("granitehybrid", {"mamba_proj_bias": True}, "mamba_proj_bias is True", "biases of projections"),
    ("granitehybrid", {"position_embedding_type": "alibi"}, "position_embedding_type is 'alibi'", "rope, nope"),
    ("falcon_h1", {"ssm_multipliers": [1.0] * 4}, "ssm_multipliers is a list of 4", "5 numbers from 1e-06 to 1e+06"),
    ("falcon_h1", {"mlp_multipliers": [1.0, "x"]}, "mlp_multipliers is a list of 2", "2 numbers"),
    ("falcon_h1", {"projectors_bias": True}, "projectors_bias is True", "biases of projections"),
    ("falcon_h1", {"mamba_d_ssm": 50}, "width of a state space is 50", "a multiple of the 8 heads"),
    ("nemotron_h", {"layers_block_type": ["mlp"] * 1025}, "layers_block_type is [", "1024 of full_attention"),
    ("nemotron_h", {"layers_block_type": ["mamba", "lstm"]}, "layers_block_type is [", "2 of full_attention"),
    ("nemotron_h", {"layers_block_type": None, "hybrid_override_pattern": "ME*-M"}, "(layers.1.ffn.router)", "8x32"),
    ("nemotron_h", {"layers_block_type": None, "hybrid_override_pattern": "MX*-M"}, "pattern is MX*-M", "M * - E"),
    ("nemotron_h", {"layers_block_type": None}, "hybrid_override_pattern is None", "letters among M * -"),
    ("nemotron_h", {"mlp_hidden_act": "silu"}, "mlp_hidden_act is silu", "relu2"),
]


@pytest.mark.parametrize(("name", "config", "problem", "need"), BAD, ids=[f"{b[0]}-{b[2]}" for b in BAD])
def test_bad_folder(tmp_path: Path, name: str, config: dict[str, Any], problem: str, need: str) -> None:
    check_folder_refused(tmp_path, name, config, problem, need)


BAD_GGUF: list[tuple[str, str, Any, str, str]] = [
    ("qwen3next", "ssm.inner_size", None, "qwen3next.ssm.inner_size is missing", "an integer"),
    ("qwen3next", "ssm.inner_size", 50, "ssm.inner_size is 50", "a multiple of the 4 value heads"),
    ("qwen3next", "expert_count", 8, "expert_used_count is missing", "an integer from 1"),
    ("lfm2", "expert_count", 8, "expert_count is 8", "this architecture has no mixtures of experts"),
    ("qwen35", "nextn_predict_layers", 3, "layers is 0", "at least 1"),
    ("mamba2", "ssm.inner_size", 4, "width of a state space is 4", "a multiple of the 8 heads"),
    ("lfm2", "attention.head_count_kv", np.array([0, 2], np.int32), "head_count_kv is ", "3 integers from 0"),
    ("lfm2", "attention.head_count_kv", np.array([0, -2, 0], np.int32), "head_count_kv is ", "3 integers from 0"),
    ("lfm2", "attention.head_count_kv", np.array([0, 0.5, 0], np.float32), "head_count_kv is ", "3 integers from 0"),
    ("lfm2", "attention.sliding_window", 9, "attention.sliding_window is 9", "windows are not supported"),
    ("granitehybrid", "embedding_length", 3, "head size is 0", "at least 1"),
    ("nemotron_h", "feed_forward_length", None, "feed_forward_length is missing", "an integer"),
]


@pytest.mark.parametrize(("name", "key", "value", "problem", "need"), BAD_GGUF)
def test_bad_gguf(name: str, key: str, value: Any, problem: str, need: str) -> None:
    check_line(refusal(gguf_with(name, {f"{name}.{key}": value})), problem, need)


def test_layers_that_predict_more_tokens_are_left_out() -> None:
    """Files of llama.cpp count them among the others; the last layer of this one is taken for such a one."""
    _, config = gguf_with("qwen35", {"qwen35.nextn_predict_layers": 1})()
    assert config.num_layers == 2
    assert [layer.kind for layer in config.layers] == ["recurrence", "attention"]


@pytest.mark.parametrize("name", ["qwen3next", "mamba2", "lfm2"])
def test_gguf_and_folder_agree(name: str) -> None:
    """Those of others differ: tiled heads, interleaved pairs, multipliers in the matrices, no least step of time."""
    folder, file = open_checkpoint(DATA / name).config, open_checkpoint(DATA / name / "model-f32.gguf").config
    assert replace(file, rms_eps=folder.rms_eps) == folder  # which GGUF stores as float32


@pytest.mark.parametrize("file", [*HYBRID_NAMES, "granitehybrid/model-f32.gguf", "nemotron_h/model-f32.gguf"])
def test_anything_in_any_key_is_read_or_refused_in_a_line(file: str) -> None:
    check_anything_in_any_key(file)


@pytest.mark.parametrize("name", ["qwen35", "mamba2"])
def test_a_decay_that_would_let_states_grow_is_refused(name: str, tmp_path: Path) -> None:
    whole = (DATA / name / "model-f32.gguf").read_bytes()
    tensor = next(t for t in open_checkpoint(DATA / name / "model-f32.gguf").tensors if t.endswith(".decay"))
    decay = np.asarray(open_checkpoint(DATA / name / "model-f32.gguf").tensor(tensor)).astype(np.float32)
    assert whole.count(decay.tobytes()) == 1
    file = tmp_path / "m.gguf"
    file.write_bytes(whole.replace(decay.tobytes(), (-decay).tobytes()))
    with pytest.raises(SamebitsError, match=f"tensor {tensor} is .*, but must be numbers up to 0"):
        LLM(file)
