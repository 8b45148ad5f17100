"""Tiny random checkpoints in the Hugging Face layout: two layers of width 64, no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from samebits.loaders.fields import Fields
from samebits.models.checkpoint import read_config

Command = Callable[..., tuple[int, str, str]]  # arguments -> (exit status, standard output, standard error)
TOKENS = "5,17,3,90,41,8"
HIDDEN, HEAD, VOCAB = 64, 16, 96
BASE: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": HEAD,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
EXTRA: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {},
    "gemma2": {"sliding_window": 4, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
}


def write_tiny(folder: Path, model_type: str, num_layers: int = 2) -> Path:
    """Writes config.json and model.safetensors; the weights depend on nothing but the model."""
    config = {**BASE, **EXTRA[model_type], "model_type": model_type, "num_hidden_layers": num_layers}
    architecture, parsed = read_config(Fields(config, "config"), False, {})
    rng = np.random.default_rng(7)
    tensors = {}
    for stored in architecture.tensors(parsed, is_gguf=False).values():
        scale = 1.0 if len(stored.needed) == 1 else 0.2
        tensors[stored.name] = (scale * rng.standard_normal(stored.needed)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
