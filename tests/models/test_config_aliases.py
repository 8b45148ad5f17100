"""Keys that transformers takes under a second name are read under both."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import DATA
from config_checks import check_folder_refused, check_says_the_same
from test_config_defaults import config_with

from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts.recurrence import Ssm, sizes_of

ALIASES = {  # by folder: the key, its second name, another value
    "deepseek2": [("n_routed_experts", "num_experts", 4)],
    "deepseek3": [("n_routed_experts", "num_local_experts", 4)],
    "glm4moe": [("n_routed_experts", "num_local_experts", 4)],
    "gpt_oss": [("num_local_experts", "num_experts", 8)],
    "mixtral": [("num_local_experts", "num_experts", 8)],
    "qwen3moe": [("num_experts", "num_local_experts", 4)],
    "granitehybrid": [("layer_types", "layers_block_type", ["mamba"])],
    "nemotron_h_moe": [
        ("n_routed_experts", "num_local_experts", 4),
        ("layers_block_type", "layer_types", ["mamba"]),
    ],
    "nemotron_h": [
        ("n_groups", "mamba_n_groups", 1),
        ("conv_kernel", "mamba_d_conv", 3),
        ("use_conv_bias", "mamba_conv_bias", "other"),
        ("time_step_min", "mamba_dt_min", 0.5),
    ],
}
ROWS = [(name, *row) for name, rows in ALIASES.items() for row in rows]
IDS = [f"{row[0]}-{row[2]}" for row in ROWS]
# Second names of keys without an effect on answers: one kind of layer, layers that predict more tokens.
HARMLESS = {("falcon_h1", "layer_types"), ("deepseek_v3", "num_mtp_layers"), ("glm4_moe", "num_mtp_layers")}


def stated(name: str) -> dict[str, Any]:
    return dict(json.loads((DATA / name / "config.json").read_text()))


@pytest.mark.parametrize(("name", "key", "alias", "other"), ROWS, ids=IDS)
def test_a_second_name_means_the_same(tmp_path: Path, name: str, key: str, alias: str, other: Any) -> None:
    config = stated(name)
    value = config.get(key, config.get(alias))
    given = {key: None, alias: value}
    check_says_the_same(tmp_path, name, given, "")
    (tmp_path / "both").mkdir()
    check_folder_refused(tmp_path / "both", name, {key: value, alias: other}, f"{alias} is", key)


def test_the_least_step_of_time_under_its_second_name(tmp_path: Path) -> None:
    folder = config_with(tmp_path, "nemotron_h", {"mamba_dt_min": 0.5}, without="time_step_min")
    assert sizes_of(open_checkpoint(folder).config.recurrence, Ssm).dt_min == 0.5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers")), reason="needs torch and transformers")
def test_every_second_name_of_transformers_is_here() -> None:
    from transformers_ropes import config_class

    ours = {(stated(name)["model_type"], frozenset(row[:2])) for name, *row in ROWS}
    for kind in {stated(path.parent.name)["model_type"] for path in DATA.glob("*/config.json")}:
        pairs = config_class(kind).attribute_map.items()
        assert {(kind, frozenset(pair)) for pair in pairs if (kind, pair[0]) not in HARMLESS} <= ours
