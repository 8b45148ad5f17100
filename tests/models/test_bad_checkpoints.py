"""A checkpoint that cannot be run says so in one clear line, before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_runs import DATA, make_runner
from safetensors.numpy import load_file, save_file

from samebits.core.errors import SamebitsError
from samebits.models.checkpoint import open_checkpoint

UP = "model.layers.1.mlp.up_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"


def damaged_folder(
    tmp_path: Path, name: str, config: dict[str, Any], tensors: dict[str, np.ndarray | None] | None = None
) -> Path:
    """A copy of a tiny checkpoint with other config values and tensors; None takes a tensor away."""
    folder = tmp_path / name
    folder.mkdir()
    stored = json.loads((DATA / name / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stored | config))
    merged = load_file(DATA / name / "model.safetensors") | (tensors or {})
    save_file({k: v for k, v in merged.items() if v is not None}, folder / "model.safetensors")
    return folder


def damaged_gguf(tmp_path: Path, name: str, old: bytes, new: bytes) -> Path:
    """A copy of a GGUF file with the one place that reads `old` overwritten by as many bytes."""
    content = (DATA / name / "model-f32.gguf").read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    path = tmp_path / "model.gguf"
    path.write_bytes(content.replace(old, new))
    return path


def refusal(attempt: Callable[[], Any]) -> str:
    """The message of the error that the attempt ends in, which is one line."""
    with pytest.raises(SamebitsError) as caught:
        attempt()
    message = str(caught.value)
    assert "\n" not in message
    return message


FOLDERS: list[tuple[str, dict[str, Any], dict[str, np.ndarray | None], str, str]] = [
    ("llama", {"model_type": "gpt2"}, {}, "config.json: model_type is 'gpt2'", "one of llama, mistral, "),
    ("llama", {}, {UP: None}, f"tensor {UP} (layers.1.ffn.up) is missing", "shape 48x32"),
    ("llama31", {"tie_word_embeddings": False}, {}, "tensor lm_head.weight (head) is missing", "shape 96x32"),
    ("qwen2", {}, {"model.layers.0.self_attn.v_proj.bias": None}, "(layers.0.attn.v_bias) is missing", "shape 16"),
    ("llama", {}, {K: np.zeros((25, 32), np.float32)}, f"tensor {K} (layers.0.attn.k) has shape 25x32", "shape 24x32"),
    ("llama", {"head_dim": 16}, {}, "(layers.0.attn.q) has shape 48x32", "shape 64x32"),
    ("qwen3", {"vocab_size": 97}, {}, "(embed) has shape 96x32", "shape 97x32"),
    ("llama", {}, {K: np.zeros((24, 32), np.int8)}, f"tensor {K} is format i8", "f32, f16, bf16 or "),
    (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        {},
        "rope_parameters: rope_type is 'dynamic'",
        "default, linear, llama3, yarn or longrope",
    ),
    ("llama", {"rope_parameters": {"rope_type": "llama3"}}, {}, "rope_parameters: factor is missing", "a number"),
    ("qwen3", {"mlp_bias": True}, {}, "mlp_bias is True", "not supported"),
    ("llama", {"mlp_bias": True}, {}, "mlp.gate_proj.bias (layers.0.ffn.gate_bias) is missing", "shape 48"),
]


@pytest.mark.parametrize(("name", "config", "tensors", "problem", "need"), FOLDERS, ids=[f[3] for f in FOLDERS])
def test_folder(
    tmp_path: Path, name: str, config: dict[str, Any], tensors: dict[str, np.ndarray | None], problem: str, need: str
) -> None:
    folder = damaged_folder(tmp_path, name, config, tensors)
    message = refusal(lambda: open_checkpoint(folder))
    assert message.startswith(str(folder))
    assert problem in message
    assert need in message


LLAMA = b"\x05" + bytes(7) + b"llama"  # the value of general.architecture: its length, its text
GGUF_FILES: list[tuple[str, bytes, bytes, str, str]] = [
    (
        "llama",
        b"\x05" + bytes(7) + b"llama",
        b"\x05" + bytes(7) + b"rwkv7",
        "architecture is 'rwkv7'",
        "one of llama",
    ),
    ("llama", b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight", "blk.1.ffn_up.weight (layers.1.ffn.up)", "shape 48x32"),
    ("qwen2", b"linear", b"spiral", "qwen2.rope.scaling.type is 'spiral'", "none, linear, yarn or longrope"),
]


@pytest.mark.parametrize(("name", "old", "new", "problem", "need"), GGUF_FILES, ids=[f[3] for f in GGUF_FILES])
def test_gguf(tmp_path: Path, name: str, old: bytes, new: bytes, problem: str, need: str) -> None:
    path = damaged_gguf(tmp_path, name, old, new)
    message = refusal(lambda: open_checkpoint(path))
    assert message.startswith(str(path))
    assert problem in message
    assert need in message


def test_tensor_that_a_graph_needs_and_a_checkpoint_does_not_offer() -> None:
    checkpoint = open_checkpoint(DATA / "llama")
    kept = {name: stored for name, stored in checkpoint.tensors.items() if name != "layers.1.ffn.down"}
    message = refusal(lambda: make_runner(replace(checkpoint, tensors=kept)))
    assert message == "tensor layers.1.ffn.down is missing: it must be a tensor of the checkpoint"
