"""The tiny hybrids would notice: each feature, taken away or changed a little, moves the logits far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checkpoint_runs import DATA, HYBRID_NAMES, expected, make_runner, relative_error, run_prompt

from samebits import functional as F
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint
from samebits.models.parts.decoder import Layer
from samebits.models.parts.rope import ROPE_TABLE, Rope
from samebits.models.parts.squared import TO_STEP

FAR = 1e-3  # of the largest logit; a hundred times what the architectures are allowed to err

SIZES: list[tuple[str, dict[str, Any]]] = [  # of the recurrence
    ("qwen35", {"is_tiled": True}),
    ("qwen35/model-f32.gguf", {"is_tiled": False}),  # files of this kind tile the value heads
    ("qwen3next", {"is_tiled": True}),
    ("qwen3next/model-f32.gguf", {"is_tiled": True}),  # files of this kind keep them grouped
    ("falcon_h1_norm", {"is_gated_first": False}),
    ("falcon_h1_norm", {"dt_min": 0.0}),
    ("falcon_h1_norm", {"dt_max": 10.0}),
    ("falcon_h1_norm", {"has_norm": False}),
    ("nemotron_h", {"dt_min": 0.5}),
    ("mamba2", {"is_gated_first": False}),
]
ROTATED = tuple(Layer(kind=kind) for kind in ("recurrence", "attention", "recurrence"))
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("qwen3next", {"ropes": {ROPE_TABLE: Rope(400.0, 4)}}),
    ("qwen3next", {"ropes": {ROPE_TABLE: Rope(500.0, 8)}}),
    ("lfm2", {"ropes": {ROPE_TABLE: Rope(400.0, 8)}}),
    ("granitehybrid", {"embed_scale": 1.0}),
    ("granitehybrid", {"logit_scale": 1.0}),
    ("granitehybrid", {"query_scalar": 8.0}),
    ("granitehybrid", {"factors": {}}),
    ("granitehybrid", {"ropes": {ROPE_TABLE: Rope(1e4, 8)}, "layers": ROTATED}),
    ("falcon_h1", {"embed_scale": 1.0}),
    ("falcon_h1", {"logit_scale": 1.0}),
    ("falcon_h1", {"query_scalar": 8.0}),
]
FALCON = open_checkpoint(DATA / "falcon_h1").config.factors
OPTIONAL = [
    ("qwen3next", "attn.gate"),
    ("qwen3next", "attn.q_norm"),
    ("lfm2", "attn.q_norm"),
    ("mamba2", "ssm.taps_bias"),
]


def error_with(file: str, checkpoint: FileCheckpoint) -> float:
    want = expected(file.split("/")[0])
    return relative_error(run_prompt(make_runner(checkpoint), want.token_ids), want.logits, want.scale)


@pytest.mark.parametrize(("file", "change"), SIZES, ids=[f"{f}-{'-'.join(c)}" for f, c in SIZES])
def test_recurrence(file: str, change: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(DATA / file)
    recurrence = checkpoint.config.recurrence
    assert recurrence is not None
    changed = replace(recurrence, **change)
    assert changed != recurrence
    assert error_with(file, replace(checkpoint, config=replace(checkpoint.config, recurrence=changed))) > FAR


@pytest.mark.parametrize(("file", "change"), CHANGES, ids=[f"{f}-{'-'.join(c)}" for f, c in CHANGES])
def test_hyperparameter(file: str, change: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(DATA / file)
    assert error_with(file, replace(checkpoint, config=replace(checkpoint.config, **change))) > FAR


@pytest.mark.parametrize("name", FALCON)
def test_multiplier(name: str) -> None:
    """Every one that a Falcon's config.json states."""
    checkpoint = open_checkpoint(DATA / "falcon_h1")
    factors = {**FALCON, name: 1.1 * FALCON[name]}
    assert error_with("falcon_h1", replace(checkpoint, config=replace(checkpoint.config, factors=factors))) > FAR


@pytest.mark.parametrize(("name", "ending"), OPTIONAL)
def test_optional_tensor(name: str, ending: str) -> None:
    checkpoint = open_checkpoint(DATA / name)
    kept = {tensor: stored for tensor, stored in checkpoint.tensors.items() if not tensor.endswith(ending)}
    assert len(kept) < len(checkpoint.tensors)
    assert error_with(name, replace(checkpoint, tensors=kept)) > FAR


@pytest.mark.parametrize("name", sorted(set(HYBRID_NAMES) - {"lfm2"}))
def test_a_decay_that_forgets(name: str) -> None:
    """What was before a boundary counts: a state that forgets at once gives other logits, and only after the first."""
    checkpoint, want = open_checkpoint(DATA / name), expected(name)

    class Forgetful(FileCheckpoint):
        def tensor(self, tensor: str) -> Any:
            found = super().tensor(tensor)
            return found * 100 if tensor.endswith(".decay") else found

    forgetful = Forgetful(**{f: getattr(checkpoint, f) for f in ("path", "file", "architecture", "config", "tensors")})
    got = run_prompt(make_runner(forgetful), want.token_ids)
    assert relative_error(got[0], want.logits[0], want.scale) <= 1e-5
    assert relative_error(got[48:], want.logits[48:], want.scale) > FAR


def test_norms_that_are_stored_less_one() -> None:
    checkpoint = open_checkpoint(DATA / "qwen3next")
    assert {n for n, s in checkpoint.tensors.items() if s.plus and "layers.0" in n} == {
        "layers.0.attn_norm",
        "layers.0.ffn_norm",
    }
    plain = {name: replace(stored, plus=0.0) for name, stored in checkpoint.tensors.items()}
    assert error_with("qwen3next", replace(checkpoint, tensors=plain)) > FAR


def test_relu_out_of_a_sigmoid_is_exact() -> None:
    """For every number that an op may give: 0, and 2^-50 and more."""
    small = np.float32(2.0**-50)
    x = np.array(
        [0, small, -small, np.nextafter(small, 1), 1e-7, -1e-7, 3.5, -3.5, 1e30, -1e30, np.inf, -9], np.float32
    )
    got = F.sigmoid_and_mul(x[None], F.scale(x[None], factor=TO_STEP))
    np.testing.assert_array_equal(got[0].view(np.uint32), np.maximum(x, 0).view(np.uint32))
