"""Rotations as config.json files have stated them, in old keys and new ones, drawn at random; and ours of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.loaders.fields import Fields
from samebits.models.checkpoint import read_config
from samebits.models.gemma3 import LOCAL_TABLE
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.rope import ROPE_TABLE, Rope

DATA = Path(__file__).parent / "data"
NAMES = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "mixtral", "qwen3moe", "granitemoe", "glm4moe"),
    *(
        "gpt_oss",
        "deepseek2",
        "deepseek3",
        "qwen3next",
        "qwen35",
        "qwen35moe",
        "lfm2",
        "granitehybrid_moe",
        "falcon_h1_norm",
    ),
)
ROTATION_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "rope_local_base_freq")
KINDS = ("default", "linear", "yarn", "llama3", "longrope")
THETAS = (500.0, 10000.0, 1000000.0)
Keys = dict[str, Any]


def config_of(name: str, keys: Keys) -> Keys:
    """Return the config.json of a tiny checkpoint with these keys in place of its own about rotations."""
    config = json.loads((DATA / name / "config.json").read_text())
    kept = {k: v for k, v in config.items() if k not in (*ROTATION_KEYS, "original_max_position_embeddings")}
    return {**kept, **({"position_embedding_type": "rope"} if name.startswith("granitehybrid") else {}), **keys}


def drawn_keys(random: Random, name: str) -> Keys:
    """Return the keys about rotations of a config.json, most of which transformers can read."""
    config = config_of(name, {})
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    share = {"qwen3next": 0.25, "qwen35": 0.25, "qwen35moe": 0.25, "glm4moe": 0.5}.get(name, 1.0)
    if name == "phi3" and random.random() < 0.3:
        share = 0.5
    num_factors = max(1, int(head_size * share) // 2)
    keys: Keys = {}
    if random.random() < 0.5:
        keys["rope_theta"] = random.choice(THETAS)
    if share != 1 or random.random() < 0.05:
        keys["partial_rotary_factor"] = share if random.random() < 0.9 else random.choice((0.5, 1.0, None))
    if random.random() < 0.3:
        keys["original_max_position_embeddings"] = random.choice((32, 64))
    if name == "gemma3" and random.random() < 0.5:
        keys["rope_local_base_freq"] = random.choice(THETAS)
    if random.random() < 0.6:
        keys["rope_parameters"] = _new(random, name, num_factors)
    if random.random() < 0.5:
        keys["rope_scaling"] = random.choice((None, {}, _rotation(random, name, num_factors)))
    return keys


def _new(random: Random, name: str, num_factors: int) -> Keys | None:
    """Return a value of rope_parameters: of Gemma 3 by kinds of layers, mostly."""
    if random.random() < 0.1:
        return random.choice((None, {}))
    if name != "gemma3" or random.random() < 0.1:
        return _rotation(random, name, num_factors)
    kinds = [kind for kind in ("full_attention", "sliding_attention") if random.random() < 0.7]
    return {kind: random.choice((None, {}, *[_rotation(random, name, num_factors)] * 6)) for kind in kinds}


def _rotation(random: Random, name: str, num_factors: int) -> Keys:
    """Return one object that describes a rotation."""
    kinds = ("default", "longrope") if name == "phi3" and random.random() < 0.9 else KINDS
    kind = random.choice(kinds) if random.random() < 0.95 else random.choice(("su", "dynamic", "proportional", "yarn"))
    rotation: Keys = {}
    for key in random.choice((("rope_type",), ("rope_type",), ("type",), ("rope_type", "type"))):
        rotation[key] = kind
    if kind == "default" and random.random() < 0.3:
        rotation.clear()
    if random.random() < 0.5:
        rotation["rope_theta"] = random.choice(THETAS)
    if random.random() < 0.1:
        rotation["partial_rotary_factor"] = random.choice((0.25, 0.5, 1.0))
    rotation.update(_scaling(random, kind, num_factors))
    return rotation


def _scaling(random: Random, kind: str, num_factors: int) -> Keys:
    factor = random.choice((1, 2.0, 4, 8.0))
    found: Keys = {} if kind == "default" else {"factor": factor}
    if kind in ("yarn", "llama3", "longrope", "su") and random.random() < 0.7:
        found["original_max_position_embeddings"] = random.choice((32, 64))
    if kind == "llama3":
        found |= {"low_freq_factor": random.choice((1.0, 2)), "high_freq_factor": random.choice((4.0, 3))}
    if kind in ("yarn", "longrope") and random.random() < 0.3:
        found["attention_factor"] = random.choice((None, 1.25))
    if kind == "yarn":
        found |= _some(random, {"beta_fast": (8.0, 32, None, 0), "beta_slow": (1, 2.0, None)})
        found |= _some(random, {"mscale": (0.7, 1, 0, None), "mscale_all_dim": (0.5, 1.0, 0, None)})
        found |= _some(random, {"truncate": (True, False, None)})
    if kind in ("longrope", "su"):
        for key in ("short_factor", "long_factor"):
            found[key] = [random.choice((1.0, 1.5, 2, 6.25)) for _ in range(num_factors)]
    if kind in ("yarn", "longrope", "su") and random.random() < 0.3:
        found["factor"] = None
    if kind in ("default", "linear", "llama3") and random.random() < 0.1:
        found["mscale_all_dim"] = 0.5
    return found


def _some(random: Random, choices: Mapping[str, tuple[Any, ...]]) -> Keys:
    """Return a third of the keys with a drawn value each."""
    return {key: random.choice(values) for key, values in choices.items() if random.random() < 0.33}


def our_rotations(name: str, keys: Keys) -> Keys:
    """Return what our reader makes of the keys, by kind of layer as transformers names them where there are several.

    frequencies  angles of the second position
    long         the same for contexts beyond the first one's length, for longrope
    factor       what the table is multiplied by
    score        what attention's scores are multiplied by beside it, of latent attention
    """
    _, config = read_config(Fields(config_of(name, keys), "config.json"), False, {})
    names = {ROPE_TABLE: "full_attention", LOCAL_TABLE: "sliding_attention"} if LOCAL_TABLE in config.ropes else {}
    return {names.get(table, "all"): _measured(rope, config) for table, rope in config.ropes.items()}


def _measured(rope: Rope, config: Decoder) -> Keys:
    found: Keys = _angles(rope, 2)
    if rope.switch_len is not None:
        found["long"] = _angles(rope, rope.switch_len + 1)["frequencies"]
    if config.latent is not None:
        found["score"] = (config.query_scalar / config.latent.key_size) ** -0.5
    return found


def _angles(rope: Rope, num_positions: int) -> Keys:
    """Return the angles and the magnitude that the second row of a table shows."""
    cosine, sine = rope.table(num_positions, _no_tensor)[1].astype(np.float64).T
    return {"frequencies": np.arctan2(sine, cosine).tolist(), "factor": float(np.hypot(cosine, sine)[0])}


def _no_tensor(name: str) -> HostTensor:
    raise AssertionError(f"a config.json has no tensor {name}")
