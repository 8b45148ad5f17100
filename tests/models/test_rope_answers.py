"""Rotations are those of transformers, or refused with the reason, whatever old and new keys a config.json mixes."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from drawn_ropes import DATA, NAMES, Keys, config_of, drawn_keys, our_rotations
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.errors import BadInput
from samebits.loaders.fields import Fields
from samebits.models.checkpoint import read_config

RELATIVE = 1e-5  # transformers' frequencies are a few operations in float32, ours one rounding of float64
# Why a file that transformers reads may be refused.
REFUSED = (
    "rope_type is '(dynamic|proportional)'",
    "(rope_theta|partial_rotary_factor) is missing: it must be .* as in rope_parameters, which rope_scaling replaces",
    "partial_rotary_factor is .*, but must be 1: this architecture rotates whole heads",
    "truncate is false, but must be true: transformers reads this key for all layers at once",
    "rope_scaling: type is .*, but must be the same as rope_type",
    "rope_parameters: .* is a key for all layers, but must be keys within",
)
LEAST_ANSWERED = 0.7  # of what transformers answers


@cache
def rows() -> list[tuple[str, Keys, Keys | None]]:
    return [tuple(row) for row in json.loads((DATA / "ropes.json").read_text())["rows"]]


def is_answered(name: str, keys: Keys, theirs: Keys | None) -> bool:
    """Return whether we answer; a difference, and a refusal for none of the reasons above, is a failure."""
    try:
        ours = our_rotations(name, keys)
    except BadInput as error:
        message = str(error)
        assert "\n" not in message
        assert theirs is None or any(re.search(reason, message) for reason in REFUSED), (message, keys, theirs)
        return False
    if theirs is not None:
        assert ours.keys() == theirs.keys(), keys
        for kind, rotation in theirs.items():
            check_equal(ours[kind], rotation, keys)
    return True


def check_equal(ours: Keys, theirs: Keys, keys: Any) -> None:
    assert ours.keys() == theirs.keys(), (ours, theirs, keys)
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(value, rel=RELATIVE), (key, keys)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LINEAR = {"type": "linear", "factor": 4.0}


def test_an_older_key_beside_the_newer_one_replaces_it() -> None:
    """A user adds YaRN or a linear scaling to a config.json that transformers 5 has saved."""
    alone = our_rotations("llama", {"rope_parameters": PLAIN | YARN})
    assert alone != our_rotations("llama", {"rope_parameters": PLAIN})
    assert our_rotations("llama", {"rope_parameters": PLAIN, "rope_scaling": YARN}) == alone
    scaled = our_rotations("llama", {"rope_scaling": LINEAR})
    assert our_rotations("llama", {"rope_parameters": {}, "rope_scaling": LINEAR}) == scaled
    assert our_rotations("llama", {"rope_parameters": None, "rope_scaling": LINEAR}) == scaled
    assert our_rotations("llama", {"rope_parameters": LINEAR, "rope_scaling": {}}) == scaled


@pytest.mark.parametrize("stated", [{}, {"sliding_attention": None}, {"sliding_attention": {"rope_type": "default"}}])
def test_gemma_3s_base_for_layers_in_a_window_stands_beside_the_rotations(stated: Keys) -> None:
    full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0}
    found = our_rotations(
        "gemma3", {"rope_local_base_freq": 77.0, "rope_parameters": {"full_attention": full, **stated}}
    )
    whole = {"full_attention": full, "sliding_attention": {"rope_theta": 77.0}}
    assert found == our_rotations("gemma3", {"rope_parameters": whole})
    assert found != our_rotations("gemma3", {"rope_parameters": {"full_attention": full}})


@pytest.mark.parametrize("name", ["llama", "deepseek3", "gpt_oss", "phi3"])
def test_a_base_that_an_older_key_would_drop_is_refused(name: str) -> None:
    scaling = {"rope_type": "default"} if name == "phi3" else YARN
    keys = {"rope_parameters": {"rope_theta": 500.0}, "rope_scaling": scaling}
    with pytest.raises(BadInput, match=r"rope_scaling: rope_theta is missing: it must be 500.0 as in rope_parameters"):
        our_rotations(name, keys)
    kept = our_rotations(name, {**keys, "rope_theta": 500.0})
    assert kept == our_rotations(name, {**keys, "rope_scaling": {**scaling, "rope_theta": 500.0}})


@pytest.mark.parametrize("name", NAMES)
def test_drawn_keys_give_what_transformers_gave(name: str) -> None:
    """The file holds drawn keys and the answers of the transformers that it names."""
    found = [(is_answered(*row), row[2] is not None) for row in rows() if row[0] == name]
    num_theirs = sum(theirs for _, theirs in found)
    assert num_theirs > 20
    assert sum(ours and theirs for ours, theirs in found) >= LEAST_ANSWERED * num_theirs


def test_every_architecture_with_a_rotation_is_drawn() -> None:
    """Each has a tiny checkpoint, and may read the keys in its own way."""

    def architecture(name: str) -> str:
        found, config = read_config(Fields(config_of(name, {}), name), False, {})
        return found.name if config.ropes else ""

    with_rotation = {architecture(path.parent.name) for path in DATA.glob("*/config.json")}
    assert with_rotation - {""} == {architecture(name) for name in NAMES}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers")), reason="needs torch and transformers")
@settings(max_examples=60)
@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_drawn_keys_give_what_transformers_gives(name: str, random: Any) -> None:
    from transformers_ropes import transformers_rotations

    assert transformers_rotations(name, {}) is not None
    keys = drawn_keys(random, name)
    is_answered(name, keys, transformers_rotations(name, json.loads(json.dumps(keys))))
