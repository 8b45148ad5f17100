"""The tiny mixtures would notice: each feature, taken away or changed a little, moves the logits far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkpoint_runs import DATA, expected, make_runner, relative_error, run_prompt

from samebits.models.checkpoint import FileCheckpoint, open_checkpoint
from samebits.models.parts.decoder import Layer
from samebits.models.parts.experts import mixture_of
from samebits.models.parts.rope import ROPE_TABLE

FAR = 1e-3  # of the largest logit; a hundred times what the architectures are allowed to err

MIXTURES: list[tuple[str, dict[str, Any]]] = [
    ("mixtral", {"top_k": 1}),
    ("mixtral", {"is_normalized": False}),
    ("mixtral", {"scores": "sigmoid"}),
    ("qwen3moe", {"is_normalized": False}),
    ("qwen3moe_mixed", {"is_normalized": True}),
    ("granitemoe", {"scores": "softmax"}),
    ("glm4moe", {"num_groups": 1, "num_groups_kept": 1}),
    ("glm4moe", {"num_groups_kept": 3}),
    ("glm4moe", {"group_best": 1}),
    ("glm4moe", {"scale": 1.0}),
    ("glm4moe", {"is_normalized": False}),
    ("glm4moe", {"has_choice_bias": False}),
    ("glm4moe", {"shared_size": 0}),
    ("gpt_oss", {"limit": 9.0}),
    ("gpt_oss", {"limit": 0.0}),
    ("gpt_oss", {"alpha": 1.0}),
    ("gpt_oss", {"scores": "softmax"}),
    ("gpt_oss", {"has_bias": False}),
    ("qwen3next_moe", {"has_shared_gate": False}),
    ("qwen35moe", {"shared_size": 0, "has_shared_gate": False}),
    ("qwen35moe", {"is_normalized": False}),
    ("granitehybrid_moe", {"shared_size": 0}),
    ("granitehybrid_moe", {"scores": "softmax"}),
    ("nemotron_h_moe", {"scale": 1.0}),
    ("nemotron_h_moe", {"num_groups": 1, "num_groups_kept": 1}),
    ("nemotron_h_moe", {"has_choice_bias": False}),
    ("nemotron_h_latent", {"shared_size": 0}),
]
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("granitemoe", {"embed_scale": 1.0}),
    ("granitemoe", {"logit_scale": 1.0}),
    ("granitemoe", {"query_scalar": 8.0}),
    ("granitemoe", {"factors": {}}),
    ("gpt_oss", {"layers": (Layer(ffn="experts"),) * 2}),
    ("gpt_oss", {"layers": (Layer(9, ffn="experts"),) * 2}),
]
OPTIONAL = [
    ("gpt_oss", "attn.sinks"),
    ("gpt_oss", "ffn.router_bias"),
    ("gpt_oss", "attn.o_bias"),
    ("glm4moe", "attn.q_norm"),
    ("glm4moe", "attn.q_bias"),
]


def error_with(name: str, checkpoint: FileCheckpoint) -> float:
    want = expected(name)
    return relative_error(run_prompt(make_runner(checkpoint), want.token_ids), want.logits, want.scale)


def error_of(name: str, **change: Any) -> float:
    checkpoint = open_checkpoint(DATA / name)
    return error_with(name, replace(checkpoint, config=replace(checkpoint.config, **change)))


@pytest.mark.parametrize(("name", "change"), MIXTURES, ids=[f"{n}-{'-'.join(c)}" for n, c in MIXTURES])
def test_mixture(name: str, change: dict[str, Any]) -> None:
    mixture = mixture_of(open_checkpoint(DATA / name).config.mixture)
    changed = replace(mixture, **change)
    assert changed != mixture
    assert error_of(name, mixture=changed) > FAR


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[f"{n}-{'-'.join(c)}" for n, c in CHANGES])
def test_hyperparameter(name: str, change: dict[str, Any]) -> None:
    assert error_of(name, **change) > FAR


@pytest.mark.parametrize(("name", "ending"), OPTIONAL)
def test_optional_tensor(name: str, ending: str) -> None:
    checkpoint = open_checkpoint(DATA / name)
    kept = {tensor: stored for tensor, stored in checkpoint.tensors.items() if not tensor.endswith(ending)}
    assert len(kept) < len(checkpoint.tensors)
    assert error_with(name, replace(checkpoint, tensors=kept)) > FAR


@pytest.mark.parametrize("change", [{"is_truncated": True}, {"magnitude": 1.0}, {"beta_fast": 32.0}])
def test_rotation_of_gpt_oss(change: dict[str, Any]) -> None:
    rope = open_checkpoint(DATA / "gpt_oss").config.ropes[ROPE_TABLE]
    assert error_of("gpt_oss", ropes={ROPE_TABLE: replace(rope, scaling=replace(rope.scaling, **change))}) > FAR


def test_half_of_a_head_is_rotated_in_glm() -> None:
    rope = open_checkpoint(DATA / "glm4moe").config.ropes[ROPE_TABLE]
    assert rope.dims == 4
    assert error_of("glm4moe", ropes={ROPE_TABLE: replace(rope, dims=8)}) > FAR
