"""The tiny checkpoints would notice: each feature, taken away or changed a little, moves the logits far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkpoint_runs import DATA, expected, make_runner, relative_error, run_prompt

from samebits.models.checkpoint import open_checkpoint
from samebits.models.gemma3 import LOCAL_TABLE
from samebits.models.parts.decoder import Layer
from samebits.models.parts.rope import PLAIN, ROPE_TABLE, Rope, Scaling

FAR = 1e-3  # of the largest logit; a hundred times what the architectures are allowed to err


def one_rope(theta: float = 10000.0, dims: int = 12, scaling: Scaling = PLAIN) -> dict[str, Rope]:
    return {ROPE_TABLE: Rope(theta, dims, scaling)}


def in_windows(*windows: int | None, tables: tuple[str, ...] = ()) -> tuple[Layer, ...]:
    return tuple(map(Layer, windows, tables or (ROPE_TABLE,) * len(windows)))


LOCAL = {ROPE_TABLE: Rope(1e5, 8, Scaling("linear", 4.0)), LOCAL_TABLE: Rope(100.0, 8)}
LONGROPE = open_checkpoint(DATA / "phi3").config.ropes[ROPE_TABLE].scaling
YARN = open_checkpoint(DATA / "yarn").config.ropes[ROPE_TABLE].scaling
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"ropes": one_rope(9000.0)}),
    ("llama", {"rope_is_interleaved": True}),
    ("llama", {"is_tied": True}),
    ("llama/model-f32.gguf", {"rope_is_interleaved": False}),
    ("llama31", {"ropes": one_rope(500.0)}),
    ("llama31", {"ropes": one_rope(500.0, scaling=Scaling("llama3", 8.0, 64, 1.0, 3.0))}),
    ("llama31/model-f32.gguf", {"ropes": one_rope(500.0)}),
    ("mistral", {"layers": in_windows(8, 8, 8)}),
    ("mistral", {"layers": in_windows(10, 10, 10)}),
    ("qwen2", {"ropes": one_rope(dims=8)}),
    ("qwen3", {"layers": in_windows(None, 8, 8)}),
    ("qwen3", {"layers": in_windows(9, 9, 9)}),
    ("gemma2", {"attn_soft_cap": None}),
    ("gemma2", {"final_soft_cap": None}),
    ("gemma2", {"layers": in_windows(8, None, 8, None)}),
    ("gemma2", {"layers": in_windows(None, 9, None, 9)}),
    ("gemma2", {"query_scalar": 8.0}),
    ("gemma2", {"embed_scale": 1.0}),
    ("gemma2", {"activation": "silu"}),
    ("gemma3", {"ropes": {ROPE_TABLE: LOCAL[ROPE_TABLE], LOCAL_TABLE: LOCAL[ROPE_TABLE]}}),
    ("gemma3", {"ropes": {ROPE_TABLE: LOCAL[LOCAL_TABLE], LOCAL_TABLE: LOCAL[LOCAL_TABLE]}}),
    ("gemma3", {"query_scalar": 8.0}),
    ("phi3", {"ropes": one_rope(500.0, 8)}),
    ("phi3", {"ropes": one_rope(500.0, 8, replace(LONGROPE, original_len=64))}),
    ("phi3", {"ropes": one_rope(500.0, 8, replace(LONGROPE, magnitude=1.0))}),
    ("phi3_short", {"ropes": one_rope(500.0, 8, replace(LONGROPE, magnitude=1.0596))}),
    ("phi3_short", {"layers": in_windows(8, 8)}),
    ("yarn", {"ropes": one_rope(500.0, 8, replace(YARN, magnitude=1.0))}),
    ("yarn", {"ropes": one_rope(500.0, 8, replace(YARN, beta_slow=4.0))}),
    ("yarn", {"ropes": one_rope(500.0, 8, replace(YARN, is_truncated=False))}),
]
OPTIONAL = [
    ("llama31", "_bias"),
    ("llama31", "o_bias"),
    ("qwen2", "_bias"),
    ("qwen3", "attn.q_norm"),
    ("gemma3", "attn.q_norm"),
]


def error_with(file: str, checkpoint: Any) -> float:
    want = expected(file.split("/")[0])
    return relative_error(run_prompt(make_runner(checkpoint), want.token_ids), want.logits, want.scale)


@pytest.mark.parametrize(("file", "change"), CHANGES, ids=[f"{f}-{'-'.join(c)}" for f, c in CHANGES])
def test_hyperparameter(file: str, change: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(DATA / file)
    changed = replace(checkpoint, config=replace(checkpoint.config, **change))
    changed = replace(
        changed, tensors={k: v for k, v in checkpoint.tensors.items() if k != "head" or changed.config.has_head}
    )
    assert error_with(file, changed) > FAR


@pytest.mark.parametrize(("name", "ending"), OPTIONAL)
def test_optional_tensor(name: str, ending: str) -> None:
    checkpoint = open_checkpoint(DATA / name)
    kept = {tensor: stored for tensor, stored in checkpoint.tensors.items() if not tensor.endswith(ending)}
    assert len(kept) < len(checkpoint.tensors)
    assert error_with(name, replace(checkpoint, tensors=kept)) > FAR


def test_norms_that_are_stored_less_one() -> None:
    checkpoint = open_checkpoint(DATA / "gemma2")
    plain = {name: replace(stored, plus=0.0) for name, stored in checkpoint.tensors.items()}
    assert error_with("gemma2", replace(checkpoint, tensors=plain)) > FAR
