"""Keys that config.json leaves out mean what they mean to transformers, where that would change answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import DATA

from samebits.core.errors import BadInput
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


YARN_FACTOR = {"rope_type": "yarn", "rope_theta": 500.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("yarn", {}),
        ("yarn", {"attention_factor": None, "beta_fast": None}),
        ("yarn", {"mscale": 0.7, "mscale_all_dim": 0.5}),
        ("gpt_oss", {"truncate": False}),
    ],
)
def test_a_null_factor_of_yarn_is_the_ratio_of_the_contexts(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    """transformers takes max_position_embeddings / original_max_position_embeddings where the factor is None. It is
    not run here: this is what its `_compute_yarn_parameters` does."""
    context_len = open_checkpoint(DATA / name).config.context_len
    found = []
    for folder, factor in (("stated", context_len / 64), ("null", None)):
        (tmp_path / folder).mkdir()
        parameters = {"rope_parameters": {**YARN_FACTOR, **more, "factor": factor}}
        found.append(open_checkpoint(config_with(tmp_path / folder, name, parameters)).config)
    assert found[0] == found[1]
    assert found[1].ropes[ROPE_TABLE].scaling.factor == context_len / 64


@pytest.mark.parametrize(("kind", "factor"), [("linear", {"factor": None}), ("yarn", {}), ("linear", {})])
def test_other_factors_must_be_there(tmp_path: Path, kind: str, factor: dict[str, Any]) -> None:
    """transformers divides by a linear factor as it is, and needs the key of a yarn's."""
    parameters = {**YARN_FACTOR, "rope_type": kind, **factor}
    with pytest.raises(BadInput, match="factor is missing: it must be a number"):
        open_checkpoint(config_with(tmp_path, "yarn", {"rope_parameters": parameters}))
