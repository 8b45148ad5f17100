"""How a model's makers recommend drawing its tokens: what its files state, and a table for files that state nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from samebits.core.sampling_defaults import BOUNDS, FALLBACK, MAX_TOP_K, MIN_TEMPERATURE, MIN_TOP_P, SamplingDefaults
from samebits.loaders.fields import Fields
from samebits.loaders.source import read_json

MAX_CONFIG_BYTES = 4 << 20
GENERATION_CONFIG = "generation_config.json"
GGUF_PREFIX = "general.sampling."
GGUF_KEYS = {  # our names, and those of GGUF
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}
# Recommendations of makers, by the base name in a GGUF file: most files were made before GGUF had keys for them.
KNOWN: Mapping[str, dict[str, Any]] = {
    "gemma-3": {"top_k": 64, "top_p": 0.95},
    "gpt-oss": {},
    "lfm2": {"temperature": 0.3, "min_p": 0.15, "repetition_penalty": 1.05},
    "llama-3.1": {"temperature": 0.6, "top_p": 0.9},
    "llama-3.2": {"temperature": 0.6, "top_p": 0.9},
    "llama-3.3": {"temperature": 0.6, "top_p": 0.9},
    "qwen2.5": {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05},
    "qwen3": {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "smollm2": {"temperature": 0.2, "top_p": 0.9},
}


def folder_defaults(folder: Path) -> SamplingDefaults:
    """Return what a folder's generation_config.json recommends, or FALLBACK if it says nothing of sampling.

    Raise BadInput for a value that cannot be meant.
    """
    path = folder / GENERATION_CONFIG
    if not path.is_file():
        return FALLBACK
    fields = Fields(read_json(path, MAX_CONFIG_BYTES, may_be_infinite=True), str(path))
    draws = fields.flag("do_sample", None)
    found = _stated(fields, {name: name for name in GGUF_KEYS})
    if draws is False:
        found["temperature"] = 0.0
    return FALLBACK if draws is None and not found else SamplingDefaults(GENERATION_CONFIG, **found)


def gguf_defaults(metadata: Mapping[str, Any], where: str) -> SamplingDefaults:
    """Return what a GGUF file's metadata recommends, or what KNOWN has for a model of its name, or FALLBACK.

    Raise BadInput for a value that cannot be meant.
    """
    found = _stated(Fields(metadata, where, GGUF_PREFIX), GGUF_KEYS)
    if found:
        return SamplingDefaults("GGUF metadata", **found)
    name = known_name(metadata)
    return FALLBACK if name is None else SamplingDefaults(f"known for {name}", **KNOWN[name])


def known_name(metadata: Mapping[str, Any]) -> str | None:
    """Return the name in KNOWN that a GGUF file's metadata states, or None.

    A base name must be the whole name. A file without one has a longer name, such as "Llama 3.2 1B Instruct".
    """
    base, name = (metadata.get(f"general.{key}") for key in ("basename", "name"))
    if isinstance(base, str):
        return base.lower() if base.lower() in KNOWN else None
    words = name.lower().replace(" ", "-") if isinstance(name, str) else ""
    return next((known for known in KNOWN if f"{words}-".startswith(f"{known}-")), None)


def _stated(fields: Fields, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that the fields state, by our names."""
    found: dict[str, Any] = {}
    for name, key in keys.items():
        if name == "top_k":
            if (top_k := fields.integer(key, -1, MAX_TOP_K, None)) is not None:
                found[name] = max(top_k, 0)
        elif (value := _number(fields, name, key)) is not None:
            found[name] = value
    return found


def _number(fields: Fields, name: str, key: str) -> float | None:
    """Return a value within the bounds of SamplingParams, or None if the file does not state it.

    A temperature too low to draw with means the likeliest token.
    """
    low, high = BOUNDS[name]
    value = fields.number(key, 0 if name == "top_p" else low, high, None)
    if value is None:
        return None
    short = float(str(np.float32(value)))  # as its author wrote it: 0.95, not 0.949999988
    if name == "temperature" and short < MIN_TEMPERATURE:
        return 0.0
    return max(short, MIN_TOP_P) if name == "top_p" else short
