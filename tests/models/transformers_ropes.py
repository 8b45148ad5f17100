"""The rotation that transformers reads from a config.json. Needs torch and transformers."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from drawn_ropes import Keys, config_of

INFINITY = {"__float__": "Infinity"}  # as transformers writes it


@contextmanager
def without_our_folders() -> Iterator[None]:
    """Keep torch from taking `tests/triton` for the package of that name."""
    tests = Path(__file__).parents[1]
    with patch.object(sys, "path", [path for path in sys.path if Path(path) != tests]):
        yield


def config_class(kind: str) -> Any:
    """Return transformers' class of configurations for a model_type."""
    with without_our_folders():
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        return CONFIG_MAPPING[kind]


def transformers_rotations(name: str, keys: Keys) -> Keys | None:
    """Return transformers' rotations in the shape of `our_rotations`; None if it refuses the keys or fails."""
    stated = {key: _decoded(value) for key, value in config_of(name, keys).items()}
    kind = config_class(stated["model_type"])
    with without_our_folders():
        module = import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _found(module, kind.from_dict(stated))
        except Exception:
            return None  # whatever it raises: it has no answer to compare with


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [float("inf") if item == INFINITY else item for item in value]
    return value


def _found(module: Any, config: Any) -> Keys:
    kinds = [k for k in vars(module) if k.endswith("RotaryEmbedding") and "Vision" not in k]
    rotary = getattr(module, kinds[0])(config)
    buffers = dict(rotary.named_buffers())
    if "inv_freq" in buffers:
        found = {"all": _of(rotary, "", config, rotary.rope_type, None)}
    else:
        found = {k: _of(rotary, f"{k}_", config, rotary.rope_type[k], k) for k in rotary.rope_type}
    if hasattr(module, "yarn_apply_mscale"):
        found["all"]["score"] = float(module.yarn_apply_mscale(config.rope_parameters, 1.0))
    return found


def _of(rotary: Any, prefix: str, config: Any, kind: str, layer_type: str | None) -> Keys:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies = getattr(rotary, f"{prefix}inv_freq").tolist()
    found: Keys = {"frequencies": frequencies, "factor": float(getattr(rotary, f"{prefix}attention_scaling"))}
    if kind == "longrope":
        stated = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
        beyond = stated["original_max_position_embeddings"] + 1
        more = {} if layer_type is None else {"layer_type": layer_type}
        found["long"] = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=beyond, **more)[0].tolist()
    return found
