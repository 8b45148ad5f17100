"""The tiny checkpoints would notice: each feature, taken away or changed a little, moves the logits far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkpoint_runs import DATA, expected, make_runner, relative_error, run_prompt

from samebits.core.protocols import RopeScaling
from samebits.loaders import open_checkpoint

FAR = 1e-3  # of the largest logit; a hundred times what the architectures are allowed to err

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"rope_theta": 9000.0}),
    ("llama", {"rope_is_interleaved": True}),
    ("llama", {"tie_embeddings": True}),
    ("llama/model-f32.gguf", {"rope_is_interleaved": False}),
    ("llama31", {"rope_scaling": RopeScaling()}),
    ("llama31", {"rope_scaling": RopeScaling("llama3", 8.0, 64, 1.0, 3.0)}),
    ("llama31/model-f32.gguf", {"rope_scaling": RopeScaling()}),
    ("mistral", {"sliding_window": 8}),
    ("mistral", {"sliding_window": 10}),
    ("qwen2", {"rope_scaling": RopeScaling()}),
    ("qwen3", {"sliding_window": 8}),
    ("qwen3", {"sliding_layers": (True, True, True)}),
    ("gemma2", {"attn_soft_cap": None}),
    ("gemma2", {"final_soft_cap": None}),
    ("gemma2", {"sliding_window": 8}),
    ("gemma2", {"sliding_layers": (False, True, False, True)}),
    ("gemma2", {"query_scalar": 8.0}),
    ("gemma2", {"norm_weight_offset": 0.0}),
    ("gemma2", {"embed_scale": 1.0}),
    ("gemma2", {"activation": "silu"}),
]
OPTIONAL = [("llama31", "_bias"), ("llama31", "o_bias"), ("qwen2", "_bias"), ("qwen3", "attn.q_norm")]


def error_with(file: str, checkpoint: Any) -> float:
    want = expected(file.split("/")[0])
    return relative_error(run_prompt(make_runner(checkpoint), want.token_ids), want.logits, want.scale)


@pytest.mark.parametrize(("file", "change"), CHANGES, ids=[f"{f}-{'-'.join(c)}" for f, c in CHANGES])
def test_hyperparameter(file: str, change: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(DATA / file)
    changed = replace(checkpoint, hyperparameters=replace(checkpoint.hyperparameters, **change))
    assert error_with(file, changed) > FAR


@pytest.mark.parametrize(("name", "ending"), OPTIONAL)
def test_optional_tensor(name: str, ending: str) -> None:
    checkpoint = open_checkpoint(DATA / name)
    kept = {tensor: shape for tensor, shape in checkpoint.needed.items() if not tensor.endswith(ending)}
    assert len(kept) < len(checkpoint.needed)
    assert error_with(name, replace(checkpoint, needed=kept)) > FAR
