"""What a model's files recommend for sampling: read within bounds, refused in one line, and otherwise a table."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import F32, STRING, U32, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.errors import BadInput
from samebits.core.sampling_defaults import FALLBACK, NEUTRAL, SamplingDefaults
from samebits.engine.sampling import SamplingParams
from samebits.loaders.files import open_file, read_sampling
from samebits.loaders.stated_sampling import GGUF_PREFIX, KNOWN, folder_defaults, gguf_defaults
from samebits.models.checkpoint import open_checkpoint


def values_of(folder: Path, **content: Any) -> dict[str, float]:
    (folder / "generation_config.json").write_text(json.dumps(content))
    return folder_defaults(folder).values()


def test_a_folder_that_states_nothing_gets_the_fallback(tmp_path: Path) -> None:
    assert folder_defaults(tmp_path) == FALLBACK
    assert values_of(tmp_path, eos_token_id=2, temperature=None) == FALLBACK.values()
    assert (FALLBACK.temperature, FALLBACK.top_p, FALLBACK.top_k) == (0.7, 0.95, 40)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_p": 0.9}),  # the rest as vLLM has it: neutral
        ({"do_sample": True, "top_k": 64, "top_p": 0.95}, {"top_k": 64, "top_p": 0.95}),
        ({"do_sample": True}, {}),
        ({"do_sample": False, "temperature": 0.6, "min_p": 0.1}, {"temperature": 0, "min_p": 0.1}),
        ({"do_sample": False}, {"temperature": 0}),
        ({"temperature": 1e-6, "top_k": 1}, {"temperature": 0, "top_k": 1}),
        ({"temperature": 1, "top_k": -1, "min_p": 0.15}, {"min_p": 0.15}),
        ({"temperature": 1, "top_p": 0}, {"top_p": 2.0**-16}),
    ],
)
def test_a_folder_recommends(tmp_path: Path, content: dict[str, Any], expected: dict[str, float]) -> None:
    assert values_of(tmp_path, **content) == NEUTRAL.values() | expected


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("temperature", "x"),
        ("temperature", -1),
        ("temperature", True),
        ("temperature", 1e30),
        ("temperature", math.inf),
        ("top_p", 1.5),
        ("top_p", [0.9]),
        ("top_k", 0.5),
        ("top_k", -2),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("do_sample", "true"),
    ],
)
def test_a_value_that_cannot_be_meant_is_one_line(tmp_path: Path, name: str, wrong: Any) -> None:
    with pytest.raises(BadInput, match=rf"generation_config\.json: {name} is ") as error:
        values_of(tmp_path, **{name: wrong})
    assert "\n" not in str(error.value)


def test_nan_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="JSON is invalid: NaN is not JSON, but must be a valid document"):
        values_of(tmp_path, temperature=math.nan)


def test_the_keys_of_a_gguf_file(tmp_path: Path) -> None:
    keys = {"temp": (F32, 0.35), "top_p": (F32, 0.95), "top_k": (U32, 7), "penalty_repeat": (F32, 1.05)}
    path = tiny_model(**{GGUF_PREFIX + name: value for name, value in keys.items()}).write(tmp_path / "stated.gguf")
    stated = {"temperature": 0.35, "top_p": 0.95, "top_k": 7, "repetition_penalty": 1.05}
    assert read_sampling(open_file(path)).values() == NEUTRAL.values() | stated
    checkpoint = open_checkpoint(path)
    assert checkpoint.sampling_defaults("model").source == "GGUF metadata"
    assert checkpoint.sampling_defaults("neutral") == NEUTRAL


def test_a_wrong_gguf_key_is_one_line_and_neutral_defaults_do_not_read_it(tmp_path: Path) -> None:
    path = tiny_model(**{GGUF_PREFIX + "temp": (F32, math.nan)}).write(tmp_path / "nan.gguf")
    checkpoint = open_checkpoint(path)
    with pytest.raises(BadInput, match=r"nan\.gguf: general\.sampling\.temp is nan"):
        checkpoint.sampling_defaults("model")
    assert checkpoint.sampling_defaults("neutral") == NEUTRAL


@pytest.mark.parametrize(
    ("base", "name", "known"),
    [
        ("Qwen3", None, "qwen3"),
        ("smollm2", "Smollm2 135M 8k Lc100K Mix1 Ep2", "smollm2"),
        ("Qwen3-Next", None, None),
        (None, "Llama 3.2 1B Instruct", "llama-3.2"),
        (None, "Qwen3.5 4B", None),
        (None, None, None),
        (7, 8, None),
    ],
)
def test_a_table_has_what_files_of_known_models_do_not_state(base: Any, name: Any, known: str | None) -> None:
    metadata = {"general.basename": base, "general.name": name}
    found = gguf_defaults({key: value for key, value in metadata.items() if value is not None}, "x.gguf")
    assert found == (FALLBACK if known is None else SamplingDefaults(f"known for {known}", **KNOWN[known]))


def test_keys_of_the_file_win_over_the_table(tmp_path: Path) -> None:
    more = {"general.basename": (STRING, "smollm2"), GGUF_PREFIX + "temp": (F32, 0.9)}
    path = tiny_model(**more).write(tmp_path / "own.gguf")
    assert read_sampling(open_file(path)).values() == NEUTRAL.values() | {"temperature": 0.9}


NUMBERS = st.one_of(
    st.integers(-(1 << 40), 1 << 40), st.floats(allow_subnormal=True), st.booleans(), st.text(max_size=3), st.none()
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["temp", "top_k", "top_p", "min_p", "penalty_repeat"]), NUMBERS))
def test_whatever_a_file_states_is_refused_or_can_be_drawn_with(stated: dict[str, Any]) -> None:
    try:
        found = gguf_defaults({GGUF_PREFIX + name: value for name, value in stated.items()}, "x.gguf")
    except BadInput:
        return
    params = SamplingParams(**found.values())
    assert {name: getattr(params, name) for name in found.values()} == found.values()
