"""Keys that config.json leaves out mean what they mean to transformers, where that would change answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import DATA

from samebits.models import ARCHITECTURES
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts.decoder import Layer
from samebits.models.parts.rope import ROPE_TABLE, Rope


def config_with(tmp_path: Path, name: str, change: dict[str, Any], without: str = "") -> Path:
    """A copy of a tiny checkpoint with other config values, one of them left out."""
    folder = tmp_path / name
    shutil.copytree(DATA / name, folder)
    config = json.loads((folder / "config.json").read_text()) | change
    config.pop(without, None)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


ABSENT: list[tuple[str, str, str, Any]] = [
    ("gemma2", "attn_logit_softcapping", "attn_soft_cap", 50.0),
    ("gemma2", "final_logit_softcapping", "final_soft_cap", 30.0),
    ("gemma2", "sliding_window", "layers", tuple(map(Layer, (4096, None, 4096, None)))),
    ("mistral", "sliding_window", "layers", (Layer(4096),) * 3),
    ("qwen3", "sliding_window", "layers", tuple(map(Layer, (None, 4096, 4096)))),
    ("llama", "rms_norm_eps", "rms_eps", 1e-6),
    ("llama", "rope_parameters", "ropes", {ROPE_TABLE: Rope(10000.0, 12)}),
]


@pytest.mark.parametrize(("name", "key", "field", "value"), ABSENT, ids=[f"{a[0]}-{a[1]}" for a in ABSENT])
def test_absent_key_is_the_default_of_transformers(tmp_path: Path, name: str, key: str, field: str, value: Any) -> None:
    """A key that would change answers silently; one that changes shapes is refused as a wrong shape."""
    assert getattr(open_checkpoint(config_with(tmp_path, name, {}, without=key)).config, field) == value


@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_null_switches_a_soft_cap_off(tmp_path: Path, key: str) -> None:
    config = open_checkpoint(config_with(tmp_path, "gemma2", {key: None})).config
    assert (config.attn_soft_cap is None, config.final_soft_cap is None) == (
        key.startswith("attn"),
        key.startswith("final"),
    )


def test_architectures_are_listed_by_their_own_names() -> None:
    assert {name: architecture.name for name, architecture in ARCHITECTURES.items()} == {n: n for n in ARCHITECTURES}
