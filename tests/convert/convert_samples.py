"""What the tests of conversion and `tools/ask_llama_cpp.py` share: tensors to quantize, folders to convert."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from samebits.convert.quantize import converted
from samebits.convert.writing import write

MODELS = Path(__file__).parents[1] / "models" / "data"
FACTS = Path(__file__).parent / "data" / "llama_cpp.json"
# Folders of tests/models/data, and what is changed in their config.json: windows and query scalars that GGUF has no
# key for, or that llama.cpp leaves out.
FOLDERS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama31": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"use_sliding_window": False, "layer_types": ["full_attention"] * 3},
    "qwen3_bf16": {},
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3": {"query_pre_attn_scalar": 8},
    "phi3": {},
    "yarn": {},
    "mixtral": {},
    "qwen3moe": {},
    "glm4moe": {},
    "granitemoe": {},
    "lfm2": {},
    "mamba2": {},
    "granitehybrid": {},
    "granitehybrid_moe": {},
}


def samples() -> dict[str, np.ndarray]:
    """float32 [16, 768] of several kinds; made of whole numbers, so that every machine has the same."""
    rng = np.random.default_rng(21)
    steps = rng.integers(-(1 << 20), 1 << 20, (5, 16, 768)).astype(np.float64) / (1 << 20)
    found = {"uniform": steps[0], "bell": steps.sum(axis=0) / 4, "peaked": steps[1] ** 3, "skewed": steps[2] + 0.75}
    found["zeros and one"] = np.where(steps[3] > 0.99, steps[3], 0.0)
    return {name: values.astype(np.float32) for name, values in found.items()}


def prepared(name: str, folder: Path) -> Path:
    """A folder of the test data, changed so that it can be converted."""
    target = folder / name
    shutil.copytree(MODELS / name, target, ignore=shutil.ignore_patterns("*.gguf", "*.npz"))
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **FOLDERS[name]}))
    return target


def convert_sample(name: str, folder: Path) -> tuple[Path, Path]:
    """The folder, and the GGUF file made of it."""
    source, out = prepared(name, folder), folder / f"{name}.gguf"
    write(converted(source), out, lambda *_: None)
    return source, out
